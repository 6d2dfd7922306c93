"""What tests stand on: a private ZooKeeper, a gateway, clients, a proxy."""
