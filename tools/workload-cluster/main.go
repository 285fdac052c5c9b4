// Command workload-cluster plays the Kubernetes side of the machines that the
// simulated guests boot: an API server and an etcd for each workload cluster,
// at exactly the control-plane endpoint that the bootstrap data names.
//
// The objects, their watches and the etcd answers come from Cluster API's own
// in-memory workload cluster; this program adds what a machine does to it. It
// knows nothing of Proxmox and nothing of the management cluster: whatever it
// learns arrives over its HTTP API, from what a guest read off its ISO.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the HTTP API; port 0 takes a free one")
	followStdin := flag.Bool("exit-with-stdin", false, "end when standard input closes, so that the program never outlives what started it")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *followStdin {
		ctx = untilClosed(ctx, os.Stdin)
	}
	if err := run(ctx, *listen, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workload-cluster:", err)
		os.Exit(1)
	}
}

// untilClosed returns a context that ends when the reader does.
func untilClosed(parent context.Context, reader io.Reader) context.Context {
	ctx, cancel := context.WithCancel(parent)
	go func() {
		_, _ = io.Copy(io.Discard, bufio.NewReader(reader))
		cancel()
	}()
	return ctx
}

// run serves until the context ends. The URL of the API is the first line on out.
func run(ctx context.Context, address string, out io.Writer) error {
	ctrllog.SetLogger(logr.Discard())
	clusters, err := newClusters(ctx)
	if err != nil {
		return err
	}
	defer clusters.close()

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	server := &http.Server{
		Handler:           newAPI(clusters),
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(os.Stderr, "workload-cluster: ", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return fmt.Errorf("cannot print the URL: %w", err)
	}

	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-failed:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return err
	}
}
