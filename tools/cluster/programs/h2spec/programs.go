//go:build tools

// Package programs names h2spec, so that go.mod and go.sum pin all that it is built from.
package programs

import _ "github.com/summerwind/h2spec/cmd/h2spec"
