//go:build tools

// Package programs names etcd, so that go.mod and go.sum pin all that it is built from.
package programs

import _ "go.etcd.io/etcd/server/v3"
