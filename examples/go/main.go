// Prints every fact of one Slurm cluster, including facts published while it was not running.
//
//	NATS_PASSWORD=... go run . nats://sunk-nats-teams.sunk:4222 prod subscriber-billing [CA_FILE]
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type fact struct {
	ID, Type, Subject string
	Time              string
	Data              json.RawMessage
}

func main() {
	url, cluster, user := os.Args[1], os.Args[2], os.Args[3]
	options := []nats.Option{nats.UserInfo(user, os.Getenv("NATS_PASSWORD")),
		nats.CustomInboxPrefix("_INBOX." + user), nats.MaxReconnects(-1)}
	if len(os.Args) > 4 { // Needed if NATS uses TLS.
		options = append(options, nats.RootCAs(os.Args[4]))
	}
	connection, err := nats.Connect(url, options...)
	check(err)
	stream, err := jetstream.New(connection)
	check(err)
	// The name of the user is the only one that its consumer may have.
	consumer, err := stream.CreateOrUpdateConsumer(context.Background(), "SUNK_EV_"+cluster,
		jetstream.ConsumerConfig{Durable: user, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 100})
	check(err)
	_, err = consumer.Consume(func(message jetstream.Msg) {
		var it fact
		if err := json.Unmarshal(message.Data(), &it); err != nil {
			log.Printf("%s is passed over: %v", message.Subject(), err)
		} else {
			fmt.Println(it.Time, it.ID, it.Type, it.Subject)
		}
		message.Ack() // Only now: until then it comes again.
	})
	check(err)
	select {}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
