//go:build tools

// Package tools pins the programs that are built as they are.
package tools

import (
	_ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
)
