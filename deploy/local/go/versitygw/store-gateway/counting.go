package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend"
)

// bucketCounters only ever grow, also over restarts (see counters.keep).
type bucketCounters struct {
	SentBytes atomic.Int64 // object content handed to the HTTP server, in bytes
	Gets      atomic.Int64 // GetObject requests that had an answer
}

// bucketCounts is bucketCounters as it is written and answered.
type bucketCounts struct {
	SentBytes int64 `json:"sentBytes"`
	Gets      int64 `json:"gets"`
}

type counters struct {
	mu      sync.RWMutex
	buckets map[string]*bucketCounters
}

// loadCounters reads what an earlier process kept; no file means all zero, a broken file is an error
// (starting at zero would make the counters go backwards without a word).
func loadCounters(state string) (*counters, error) {
	c := &counters{buckets: map[string]*bucketCounters{}}
	if state == "" {
		return c, nil
	}
	text, err := os.ReadFile(state)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kept counters: %w", err)
	}
	kept := map[string]bucketCounts{}
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, fmt.Errorf("read the kept counters in %s: %w (delete the file to start at zero)", state, err)
	}
	for name, counts := range kept {
		b := c.bucket(name)
		b.SentBytes.Store(counts.SentBytes)
		b.Gets.Store(counts.Gets)
	}
	return c, nil
}

func (c *counters) bucket(name string) *bucketCounters {
	c.mu.RLock()
	b := c.buckets[name]
	c.mu.RUnlock()
	if b != nil {
		return b
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buckets[name] == nil {
		c.buckets[name] = &bucketCounters{}
	}
	return c.buckets[name]
}

func (c *counters) snapshot() map[string]bucketCounts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	counts := make(map[string]bucketCounts, len(c.buckets))
	for name, b := range c.buckets {
		counts[name] = bucketCounts{SentBytes: b.SentBytes.Load(), Gets: b.Gets.Load()}
	}
	return counts
}

// keep writes the counters every interval while they change, and once more at the end. After a kill the
// counters are at most one interval old.
func (c *counters) keep(ctx context.Context, state string, interval time.Duration) {
	if state == "" {
		return
	}
	var written string
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		text, err := json.Marshal(c.snapshot())
		if err == nil && string(text) != written {
			if err = replaceFile(state, text); err == nil {
				written = string(text)
			}
		}
		if err != nil {
			log.Printf("store-gateway: keep the counters: %v", err)
		}
		if ctx.Err() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func replaceFile(path string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".counters-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	if _, err = temporary.Write(text); err != nil {
		temporary.Close()
		return err
	}
	if err = temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// countingBackend counts the content of objects on its way to the HTTP server.
type countingBackend struct {
	backend.Backend
	counters *counters
}

func (b *countingBackend) GetObject(ctx context.Context, input *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	output, err := b.Backend.GetObject(ctx, input)
	if err != nil || output == nil || input.Bucket == nil {
		return output, err
	}
	// The HTTP server reuses the memory of a request, its strings included: what outlives the request is a copy.
	counts := b.counters.bucket(strings.Clone(*input.Bucket))
	counts.Gets.Add(1)
	if output.Body != nil {
		output.Body = &countingBody{ReadCloser: output.Body, sent: &counts.SentBytes}
	}
	return output, nil
}

type countingBody struct {
	io.ReadCloser
	sent *atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.sent.Add(int64(n))
	return n, err
}
