package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	inmemoryapi "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/api"
	inmemoryetcd "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server/etcd"
)

// The multiplexer that comes with the in-memory handlers listens on all
// addresses and hands out ports itself. Workload clusters here share a port
// and differ in their loopback address, so each gets its own listener.

// serve opens the API server at the endpoint unless it is open. The caller holds the lock.
func (c *cluster) serve() error {
	if c.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp", c.endpoint)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           c.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		// Clients that go away amid a handshake are no news.
		ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			GetConfigForClient: c.tlsFor,
		},
	}
	c.server = server
	go func() {
		if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("workload-cluster: API server at %s ended: %v", c.endpoint, err)
		}
	}()
	return nil
}

func (c *cluster) closeServer() {
	if c.server != nil {
		_ = c.server.Close()
		c.server = nil
	}
}

// tlsFor presents the API server, or the etcd member that the client names; a
// port forward to an etcd pod comes back here under the pod's name.
func (c *cluster) tlsFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if strings.HasPrefix(hello.ServerName, "etcd-") {
		certificate, ok := c.etcdCerts[hello.ServerName]
		if !ok {
			return nil, fmt.Errorf("no etcd member %s runs at %s", hello.ServerName, c.endpoint)
		}
		config.Certificates = []tls.Certificate{*certificate}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = c.etcdCA.pool()
		return config, nil
	}
	config.Certificates = []tls.Certificate{*c.apiCert}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	config.ClientCAs = c.ca.pool()
	return config, nil
}

func (c *cluster) handler() http.Handler {
	resolve := func(string) (string, error) { return c.endpoint, nil }
	etcd := inmemoryetcd.NewEtcdServerHandler(c.manager, logr.Discard(), resolve)
	objects := inmemoryapi.NewAPIServerHandler(c.manager, logr.Discard(), resolve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			if !strings.HasPrefix(r.TLS.ServerName, "etcd-") {
				http.Error(w, "this is the API server", http.StatusUnsupportedMediaType)
				return
			}
			etcd.ServeHTTP(w, r)
			return
		}
		switch r.URL.Path {
		case "/version":
			writeJSON(w, http.StatusOK, c.version())
			return
		case "/livez", "/readyz", "/healthz":
			_, _ = io.WriteString(w, "ok")
			return
		}
		if len(r.TLS.VerifiedChains) == 0 {
			writeJSON(w, http.StatusUnauthorized, metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status:   metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized,
				Message: "Unauthorized", Code: http.StatusUnauthorized,
			})
			return
		}
		c.serveObjects(objects, w, r)
	})
}

func (c *cluster) serveObjects(objects http.Handler, w http.ResponseWriter, r *http.Request) {
	// The in-memory server reads JSON as well, but its routes name protobuf alone.
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if strings.HasPrefix(r.Header.Get("Content-Type"), runtime.ContentTypeJSON) {
			r.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
		}
	}
	objects.ServeHTTP(w, r)
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok && r.Method == http.MethodDelete {
		if err := c.nodeDeleted(r.Context(), name); err != nil {
			log.Printf("workload-cluster: cannot collect the pods of node %s at %s: %v", name, c.endpoint, err)
		}
	}
}

// version is that of the first control-plane machine that runs.
func (c *cluster) version() version.Info {
	c.lock.RLock()
	defer c.lock.RUnlock()
	info := version.Info{Platform: "linux/amd64"}
	for _, state := range c.states() {
		if state.controlPlane && state.running {
			info.GitVersion = state.KubernetesVersion
			parts := strings.SplitN(strings.TrimPrefix(state.KubernetesVersion, "v"), ".", 3)
			if len(parts) > 1 {
				info.Major, info.Minor = parts[0], parts[1]
			}
			break
		}
	}
	return info
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
