// Command store-gateway serves a folder over the S3 protocol and counts what it sends.
//
// It is versitygw with its POSIX backend, used as a library for one reason: the access log of versitygw
// knows what was asked for, not what was sent. A client that closes a ranged read early (the S3 clients of
// most data engines do so all the time) would be billed for the whole range. Here the body of every GetObject
// is wrapped in a reader that counts the bytes as the HTTP server takes them, per bucket.
//
// Environment: STORE_ACCESS_KEY_ID, STORE_SECRET_ACCESS_KEY (required).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	root := flag.String("root", "", "folder whose sub-folders are the buckets")
	listen := flag.String("listen", ":7070", "address of the S3 API")
	counters := flag.String("counters-listen", "127.0.0.1:7071", "address of /counters (JSON) and /healthz")
	state := flag.String("state", "", "file that keeps the counters over a restart; empty: they are not kept")
	flag.Parse()
	if err := run(*root, *listen, *counters, *state); err != nil {
		log.Fatalf("store-gateway: %v", err)
	}
}

func run(root, listen, countersListen, state string) error {
	access, secret := os.Getenv("STORE_ACCESS_KEY_ID"), os.Getenv("STORE_SECRET_ACCESS_KEY")
	if access == "" || secret == "" {
		return errors.New("STORE_ACCESS_KEY_ID and STORE_SECRET_ACCESS_KEY must be set: they are the only account")
	}
	if root == "" {
		return errors.New("--root is missing: name the folder whose sub-folders are the buckets")
	}
	counted, err := loadCounters(state)
	if err != nil {
		return err
	}
	files, err := posix.New(root, meta.XattrMeta{}, posix.PosixOpts{})
	if err != nil {
		return fmt.Errorf("serve folder %s: %w", root, err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		counted.keep(ctx, state, time.Second)
	}()

	side := &http.Server{Addr: countersListen, Handler: counted.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := side.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Printf("store-gateway: counters at %s: %v", countersListen, err)
			stop()
		}
	}()

	err = embedgw.RunVersityGW(ctx, &countingBackend{Backend: files, counters: counted}, &embedgw.Config{
		RootUserAccess:    access,
		RootUserSecret:    secret,
		Region:            "us-east-1",
		Ports:             []string{listen},
		MaxConnections:    10_000,
		MaxRequests:       5_000,
		MultipartMaxParts: 10_000,
		KeepAlive:         true,
		Quiet:             true,
	})
	stop()
	<-kept
	_ = side.Close()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("serve S3 at %s: %w", listen, err)
	}
	return nil
}

func (c *counters) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /counters", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(c.snapshot())
	})
	return mux
}
