package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Limits a request body: kubeadm's whole configuration and PKI take a few tens of kB.
const maxBody = 4 << 20

// refusal is an error with the status that the guest acts on: 503 and 401 are
// worth another try, as kubeadm join would make; all others are final.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func invalid(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return &refusal{http.StatusConflict, fmt.Sprintf(format, args...)}
}

func unauthorized(format string, args ...any) error {
	return &refusal{http.StatusUnauthorized, fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) error {
	return &refusal{http.StatusServiceUnavailable, fmt.Sprintf(format, args...)}
}

// newAPI routes the HTTP API that the guests speak. An endpoint is the
// control-plane endpoint, host:port, by which a guest knows its cluster.
func newAPI(clusters *clusters) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/clusters", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"clusters": clusters.views()})
	})
	mux.HandleFunc("GET /v1/clusters/{endpoint}", func(w http.ResponseWriter, r *http.Request) {
		view, err := clusters.view(r.PathValue("endpoint"))
		reply(w, view, err)
	})
	mux.HandleFunc("DELETE /v1/clusters/{endpoint}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, map[string]any{}, clusters.drop(r.PathValue("endpoint")))
	})
	mux.HandleFunc("POST /v1/clusters/{endpoint}/control-plane", func(w http.ResponseWriter, r *http.Request) {
		machine, err := read[controlPlaneMachine](w, r)
		if err == nil {
			err = clusters.bootControlPlane(r.Context(), r.PathValue("endpoint"), machine)
		}
		reply(w, map[string]string{"node": machine.NodeName}, err)
	})
	mux.HandleFunc("POST /v1/clusters/{endpoint}/worker", func(w http.ResponseWriter, r *http.Request) {
		machine, err := read[workerMachine](w, r)
		if err == nil {
			err = clusters.bootWorker(r.Context(), r.PathValue("endpoint"), machine)
		}
		reply(w, map[string]string{"node": machine.NodeName}, err)
	})
	for action, apply := range map[string]func(*http.Request, *cluster, string) error{
		"POST /v1/clusters/{endpoint}/nodes/{name}/stop": func(r *http.Request, c *cluster, name string) error {
			return c.stopMachine(r.Context(), name)
		},
		"POST /v1/clusters/{endpoint}/nodes/{name}/start": func(r *http.Request, c *cluster, name string) error {
			return c.startMachine(r.Context(), name)
		},
		"DELETE /v1/clusters/{endpoint}/nodes/{name}": func(r *http.Request, c *cluster, name string) error {
			return c.destroyMachine(r.Context(), name)
		},
	} {
		mux.HandleFunc(action, func(w http.ResponseWriter, r *http.Request) {
			cluster, err := clusters.find(r.PathValue("endpoint"))
			if err == nil {
				err = apply(r, cluster, r.PathValue("name"))
			}
			reply(w, map[string]string{"node": r.PathValue("name")}, err)
		})
	}
	return mux
}

func read[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	var body T
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return body, invalid("the request body is not the JSON expected here: %v", err)
	}
	return body, nil
}

func reply(w http.ResponseWriter, body any, err error) {
	if err == nil {
		answer(w, http.StatusOK, body)
		return
	}
	status := http.StatusInternalServerError
	var refused *refusal
	if errors.As(err, &refused) {
		status = refused.status
	}
	answer(w, status, map[string]string{"error": err.Error()})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
