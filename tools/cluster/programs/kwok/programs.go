//go:build tools

// Package programs names kwok, so that go.mod and go.sum pin all that it is built from.
package programs

import _ "sigs.k8s.io/kwok/cmd/kwok"
