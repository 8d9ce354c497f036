package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend"
)

type oneObject struct {
	backend.BackendUnsupported
	content string
}

func (o oneObject) GetObject(context.Context, *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	return &s3.GetObjectOutput{Body: io.NopCloser(strings.NewReader(o.content))}, nil
}

func read(t *testing.T, b *countingBackend, bucket string, limit int64) {
	t.Helper()
	output, err := b.GetObject(context.Background(), &s3.GetObjectInput{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, output.Body, limit); err != nil {
		t.Fatal(err)
	}
	output.Body.Close()
}

func TestOnlyTheBytesThatWereTakenAreCounted(t *testing.T) {
	c, _ := loadCounters("")
	b := &countingBackend{Backend: oneObject{content: strings.Repeat("x", 1000)}, counters: c}
	read(t, b, "whole", 1000)
	read(t, b, "whole", 1000)
	read(t, b, "part", 10)
	got := c.snapshot()
	if got["whole"] != (bucketCounts{SentBytes: 2000, Gets: 2}) || got["part"] != (bucketCounts{SentBytes: 10, Gets: 1}) {
		t.Fatalf("counted %v", got)
	}
}

func TestCountersGoOnAfterARestart(t *testing.T) {
	state := filepath.Join(t.TempDir(), "counters.json")
	c, err := loadCounters(state)
	if err != nil {
		t.Fatal(err)
	}
	b := &countingBackend{Backend: oneObject{content: "12345"}, counters: c}
	read(t, b, "b", 5)
	ended, end := context.WithCancel(context.Background())
	end()
	c.keep(ended, state, time.Hour)

	again, err := loadCounters(state)
	if err != nil {
		t.Fatal(err)
	}
	read(t, &countingBackend{Backend: oneObject{content: "12345"}, counters: again}, "b", 5)
	if got := again.snapshot()["b"]; got != (bucketCounts{SentBytes: 10, Gets: 2}) {
		t.Fatalf("counted %v", got)
	}
}
