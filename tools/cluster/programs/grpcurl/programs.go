//go:build tools

// Package programs names grpcurl, so that go.mod and go.sum pin all that it is built from.
package programs

import _ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
