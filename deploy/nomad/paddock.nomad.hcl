# paddock on each client of a Nomad cluster, each with the engine of its own machine:
#
#   nomad var put nomad/jobs/paddock token=$(openssl rand -hex 32) cluster_key=$(openssl rand -hex 32) \
#       file_secret=$(openssl rand -hex 32) database=postgres://paddock:…@db:5432/paddock \
#       aws_access_key_id=… aws_secret_access_key=…
#   nomad job run -var image=registry.example/paddock:0.1.0 -var objects=s3://bucket/prefix \
#       -var public_url=https://paddock.example deploy/nomad/paddock.nomad.hcl
#
# The clients need the Docker driver with `volumes { enabled = true }`, `max_kill_timeout = "90s"`, and the folder of
# `store`, which belongs to user 65532. The store of a node is a cache: nothing is lost with it. Nodes find each other by Consul's DNS; without Consul,
# give `peers` a name that leads to all clients, and `provider = "nomad"` to both services.

variable "image" {
  type        = string
  description = "With a tag that is not latest: that one is always pulled, also where the machine has it."
}

variable "datacenters" {
  type    = list(string)
  default = ["*"]
}

variable "objects" {
  type        = string
  description = "Where the contents of files are: s3://bucket/prefix."
}

variable "public_url" {
  type        = string
  description = "What stands before all nodes: links to files begin with it."
}

variable "peers" {
  type    = string
  default = "paddock-peers.service.consul:7946"
}

variable "store" {
  type    = string
  default = "/var/lib/paddock"
}

variable "docker_gid" {
  type        = string
  description = "The group of the engine's socket, the same on each client."
  default     = "999"
}

variable "aws_region" {
  type    = string
  default = "us-east-1"
}

job "paddock" {
  type        = "system"
  datacenters = var.datacenters

  # One node after the other: the sessions of each go to those that stay.
  update {
    max_parallel = 1
    stagger      = "30s"
  }

  group "paddock" {
    network {
      mode = "host"
      port "http" {
        static = 8080
      }
      port "peers" {
        static = 7946
      }
    }

    service {
      name = "paddock"
      port = "http"

      # 503 while a node drains or cannot serve a run: what balances the load leaves it out.
      check {
        type     = "http"
        path     = "/ready"
        interval = "5s"
        timeout  = "2s"
      }
    }

    # An address for each node that runs, whether it is ready or not: it may have sessions that others ask for.
    service {
      name = "paddock-peers"
      port = "peers"
    }

    restart {
      attempts = 10
      interval = "5m"
      delay    = "2s"
      mode     = "delay"
    }

    task "paddock" {
      driver = "docker"
      # Who may use the engine's socket has the power of root on this machine; the daemon itself is an ordinary user.
      user = "65532"
      # A node that is told to go ends its programs and gives its sessions to others.
      kill_timeout = "90s"

      config {
        image           = var.image
        args            = ["serve", "--config", "/local/paddock.toml"]
        network_mode    = "host"
        group_add       = [var.docker_gid]
        readonly_rootfs = true
        cap_drop        = ["all"]
        volumes = [
          "/var/run/docker.sock:/var/run/docker.sock",
          "${var.store}:/var/lib/paddock",
        ]
      }

      env {
        PUBLIC_BASE_URL = var.public_url
        AWS_REGION      = var.aws_region
      }

      # config.example.toml explains every key.
      template {
        destination = "local/paddock.toml"
        data        = <<-TOML
          [http]
          addr = "0.0.0.0:8080"

          [auth]
          token = "env:PADDOCK_TOKEN"

          [files]
          secret = "env:PADDOCK_FILE_SECRET"

          [store]
          url = "env:PADDOCK_DATABASE"
          objects = "${var.objects}"

          [cluster]
          peers = ["${var.peers}"]
          key = "env:PADDOCK_CLUSTER_KEY"
          name = "{{ env "node.unique.name" }}"
          addr = "{{ env "NOMAD_IP_peers" }}:7946"
        TOML
      }

      template {
        destination = "secrets/paddock.env"
        env         = true
        perms       = "400"
        data        = <<-ENV
          {{ with nomadVar "nomad/jobs/paddock" }}
          PADDOCK_TOKEN={{ .token | toJSON }}
          PADDOCK_FILE_SECRET={{ .file_secret | toJSON }}
          PADDOCK_DATABASE={{ .database | toJSON }}
          PADDOCK_CLUSTER_KEY={{ .cluster_key | toJSON }}
          AWS_ACCESS_KEY_ID={{ .aws_access_key_id | toJSON }}
          AWS_SECRET_ACCESS_KEY={{ .aws_secret_access_key | toJSON }}
          {{ end }}
        ENV
      }

      resources {
        cpu    = 500
        memory = 512
      }
    }
  }
}
