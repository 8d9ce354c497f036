//go:build tools

// Package tools pins the programs that are built as they are.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
