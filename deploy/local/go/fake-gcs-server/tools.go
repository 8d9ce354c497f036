//go:build tools

// Package tools pins the programs that are built as they are.
package tools

import (
	_ "github.com/fsouza/fake-gcs-server"
)
