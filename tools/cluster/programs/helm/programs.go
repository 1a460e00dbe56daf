//go:build tools

// Package programs names helm, so that go.mod and go.sum pin all that it is built from.
package programs

import _ "helm.sh/helm/v3/cmd/helm"
