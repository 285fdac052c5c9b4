package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
)

// clusters holds every workload cluster by its control-plane endpoint.
type clusters struct {
	manager inmemory.Manager

	lock       sync.Mutex
	byEndpoint map[string]*cluster
}

func newClusters(ctx context.Context) (*clusters, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	manager := inmemory.NewManager(scheme)
	if err := manager.Start(ctx); err != nil {
		return nil, err
	}
	return &clusters{manager: manager, byEndpoint: map[string]*cluster{}}, nil
}

// readEndpoint checks a control-plane endpoint. Only loopback addresses are
// served: the program must not open a port that others can reach.
func readEndpoint(endpoint string) (string, error) {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		return "", invalid("control-plane endpoint %q is not host:port: %v", endpoint, err)
	}
	address, err := netip.ParseAddr(host)
	if err != nil || !address.IsLoopback() {
		return "", invalid("control-plane endpoint %q must be at a loopback address such as 127.11.22.33", endpoint)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", invalid("control-plane endpoint %q has no usable port", endpoint)
	}
	return net.JoinHostPort(address.String(), strconv.FormatUint(number, 10)), nil
}

func (s *clusters) find(endpoint string) (*cluster, error) {
	endpoint, err := readEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	cluster, ok := s.byEndpoint[endpoint]
	if !ok {
		return nil, missing("no workload cluster at %s", endpoint)
	}
	return cluster, nil
}

// bootControlPlane makes a booted machine part of a control plane, or its first member.
func (s *clusters) bootControlPlane(ctx context.Context, endpoint string, machine controlPlaneMachine) error {
	endpoint, err := readEndpoint(endpoint)
	if err != nil {
		return err
	}
	if err := machine.check(); err != nil {
		return err
	}
	ca, err := readAuthority(machine.PKI, "ca")
	if err != nil {
		return err
	}
	etcdCA, err := readAuthority(machine.PKI, "etcd/ca")
	if err != nil {
		return err
	}
	if !machine.Init {
		cluster, err := s.join(endpoint, machine.Discovery)
		if err != nil {
			return err
		}
		return cluster.joinControlPlane(ctx, machine, ca, etcdCA)
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	if existing, ok := s.byEndpoint[endpoint]; ok {
		return existing.reinit(machine, ca)
	}
	s.manager.AddResourceGroup(endpoint)
	cluster := newCluster(s.manager, endpoint, ca, etcdCA, func() { s.forget(endpoint) })
	if err := cluster.init(ctx, machine); err != nil {
		s.manager.DeleteResourceGroup(endpoint)
		return err
	}
	s.byEndpoint[endpoint] = cluster
	return nil
}

// bootWorker makes a booted machine a worker.
func (s *clusters) bootWorker(ctx context.Context, endpoint string, machine workerMachine) error {
	endpoint, err := readEndpoint(endpoint)
	if err != nil {
		return err
	}
	if err := machine.check(); err != nil {
		return err
	}
	cluster, err := s.join(endpoint, &machine.Discovery)
	if err != nil {
		return err
	}
	return cluster.joinWorker(ctx, machine)
}

// join finds the cluster that a machine wants to join and lets it discover it.
func (s *clusters) join(endpoint string, discovery *discovery) (*cluster, error) {
	if discovery == nil {
		return nil, invalid("a join needs discovery: a bootstrap token")
	}
	s.lock.Lock()
	cluster, ok := s.byEndpoint[endpoint]
	s.lock.Unlock()
	if !ok {
		return nil, unavailable("no API server answers at %s", endpoint)
	}
	return cluster, nil
}

// drop ends a cluster with all it holds.
func (s *clusters) drop(endpoint string) error {
	cluster, err := s.find(endpoint)
	if err != nil {
		return err
	}
	cluster.drop()
	s.forget(cluster.endpoint)
	return nil
}

func (s *clusters) forget(endpoint string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	delete(s.byEndpoint, endpoint)
	s.manager.DeleteResourceGroup(endpoint)
}

func (s *clusters) view(endpoint string) (clusterView, error) {
	cluster, err := s.find(endpoint)
	if err != nil {
		return clusterView{}, err
	}
	return cluster.view()
}

func (s *clusters) views() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	endpoints := make([]string, 0, len(s.byEndpoint))
	for endpoint := range s.byEndpoint {
		endpoints = append(endpoints, endpoint)
	}
	slices.SortFunc(endpoints, strings.Compare)
	return endpoints
}

func (s *clusters) close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, cluster := range s.byEndpoint {
		cluster.drop()
	}
}
