//go:build tools

// Package tools pins the programs that are built as they are.
package tools

import (
	_ "github.com/versity/versitygw/cmd/versitygw"
)
