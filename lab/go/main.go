// kube-lab-bin: every program of a small Kubernetes in one binary, chosen by argv[0] or by the first argument.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	cm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	sched "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube-lab-bin" && len(os.Args) > 1 {
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	var c *cobra.Command
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		return
	case "coredns":
		dnsserver.Directives = []string{"bind", "log", "errors", "health", "ready", "loop", "cache", "hosts", "kubernetes", "forward"}
		coremain.Run()
		return
	case "provisioner":
		c = provisionerCommand()
	case "kube-apiserver":
		c = apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		c = cm.NewControllerManagerCommand()
	case "kube-scheduler":
		c = sched.NewSchedulerCommand()
	case "kube-proxy":
		c = proxy.NewProxyCommand()
	case "kubelet":
		c = kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		c = cmd.NewDefaultKubectlCommand()
	default:
		fmt.Fprintln(os.Stderr, "kube-lab-bin: unknown program", name)
		os.Exit(2)
	}
	os.Exit(cli.Run(c))
}

// provisioner makes a directory and a "local" PersistentVolume for each claim of the StorageClass whose provisioner is sunk-lab/local.
type provisioner struct{ dir string }

func (p provisioner) Provision(_ context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	if o.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, errors.New("the StorageClass must have volumeBindingMode WaitForFirstConsumer")
	}
	path := filepath.Join(p.dir, o.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	if err := os.Chmod(path, 0o777); err != nil { // whatever the umask
		return nil, controller.ProvisioningFinished, err
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: path}},
			NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{
					Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{o.SelectedNodeName}}}}}}},
		},
	}, controller.ProvisioningFinished, nil
}

func (p provisioner) Delete(_ context.Context, v *v1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(p.dir, v.Name))
}

func provisionerCommand() *cobra.Command {
	var config, dir string
	c := &cobra.Command{Use: "provisioner", RunE: func(c *cobra.Command, _ []string) error {
		rest, err := clientcmd.BuildConfigFromFlags("", config)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(rest)
		if err != nil {
			return err
		}
		controller.NewProvisionController(c.Context(), client, "sunk-lab/local", provisioner{dir},
			controller.LeaderElection(false)).Run(context.Background())
		return nil
	}}
	c.Flags().StringVar(&config, "kubeconfig", "", "")
	c.Flags().StringVar(&dir, "dir", "", "where the volumes are")
	return c
}
