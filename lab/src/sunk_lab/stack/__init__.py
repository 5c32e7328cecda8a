"""The five services on the lab's servers: started as processes of their own, killed, started again."""
