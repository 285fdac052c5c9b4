package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	inmemory "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is one workload cluster: its objects live in the in-memory resource
// group that is named like its endpoint, its machines here.
type cluster struct {
	endpoint string
	host     string
	manager  inmemory.Manager
	objects  inmemory.Client
	ca       authority
	etcdCA   authority
	// gone is called once, after the last control-plane machine was destroyed.
	gone func()

	// lock guards what follows, and makes each change of the machines one step.
	lock     sync.RWMutex
	machines map[string]*machineState
	apiCert  *tls.Certificate
	// etcdCerts holds the serving certificates of the running etcd members by pod name.
	etcdCerts map[string]*tls.Certificate
	server    *http.Server
	// ended is set when its control plane is gone for good; nothing is done with it then.
	ended bool
}

// machineState is a machine that still exists, whether or not it runs.
type machineState struct {
	machine
	controlPlane bool
	running      bool
}

func newCluster(manager inmemory.Manager, endpoint string, ca, etcdCA authority, gone func()) *cluster {
	host, _, _ := net.SplitHostPort(endpoint)
	return &cluster{
		endpoint:  endpoint,
		host:      host,
		manager:   manager,
		objects:   manager.GetResourceGroup(endpoint).GetClient(),
		ca:        ca,
		etcdCA:    etcdCA,
		gone:      gone,
		machines:  map[string]*machineState{},
		etcdCerts: map[string]*tls.Certificate{},
	}
}

// init makes the first control-plane machine, as kubeadm init does.
func (c *cluster) init(ctx context.Context, machine controlPlaneMachine) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	names := append([]string{c.host, "127.0.0.1", "::1", "localhost", "kubernetes", machine.NodeName}, machine.CertSANs...)
	certificate, err := c.ca.serve("kube-apiserver", names)
	if err != nil {
		return invalid("the cluster CA of %s cannot sign: %v", c.endpoint, err)
	}
	c.apiCert = certificate
	if err := c.createFoundation(ctx, machine); err != nil {
		return err
	}
	return c.addControlPlane(ctx, machine.machine)
}

// reinit answers a kubeadm init where a cluster already is: the same machine
// repeating itself is told yes, anything else is a second cluster at one address.
func (c *cluster) reinit(machine controlPlaneMachine, ca authority) error {
	c.lock.RLock()
	defer c.lock.RUnlock()
	if state, ok := c.machines[machine.NodeName]; ok && state.controlPlane && state.running && c.ca.same(ca) {
		return nil
	}
	return conflict("kubeadm init of node %s: a control plane already exists at %s", machine.NodeName, c.endpoint)
}

// joinControlPlane adds a member, as kubeadm join --control-plane does.
func (c *cluster) joinControlPlane(ctx context.Context, machine controlPlaneMachine, ca, etcdCA authority) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if err := c.admit(ctx, machine.NodeName, *machine.Discovery); err != nil {
		return err
	}
	if !c.ca.same(ca) || !c.etcdCA.same(etcdCA) {
		return conflict("kubeadm join of node %s: its certificate authorities are not those of the cluster at %s", machine.NodeName, c.endpoint)
	}
	return c.addControlPlane(ctx, machine.machine)
}

// joinWorker adds a worker, as kubeadm join does.
func (c *cluster) joinWorker(ctx context.Context, machine workerMachine) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if err := c.admit(ctx, machine.NodeName, machine.Discovery); err != nil {
		return err
	}
	if err := c.putNode(ctx, machine.machine, false); err != nil {
		return err
	}
	c.machines[machine.NodeName] = &machineState{machine: machine.machine, running: true}
	return nil
}

func (c *cluster) addControlPlane(ctx context.Context, machine machine) error {
	if err := c.putNode(ctx, machine, true); err != nil {
		return err
	}
	if err := c.addEtcdMember(ctx, machine.NodeName); err != nil {
		return err
	}
	if err := c.putControlPlanePods(ctx, machine, true); err != nil {
		return err
	}
	c.machines[machine.NodeName] = &machineState{machine: machine, controlPlane: true, running: true}
	if err := c.serve(); err != nil {
		delete(c.machines, machine.NodeName)
		return conflict("cannot open the API server of node %s: %v", machine.NodeName, err)
	}
	return nil
}

// stopMachine powers a machine off: its node is no longer heard of.
func (c *cluster) stopMachine(ctx context.Context, name string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	state, ok := c.machines[name]
	if !ok {
		return missing("no machine with node %s at %s", name, c.endpoint)
	}
	return c.powerOff(ctx, state)
}

func (c *cluster) powerOff(ctx context.Context, state *machineState) error {
	state.running = false
	if err := c.silenceNode(ctx, state.NodeName); err != nil {
		return err
	}
	if !state.controlPlane {
		return nil
	}
	delete(c.etcdCerts, etcdPodName(state.NodeName))
	if err := c.putControlPlanePods(ctx, state.machine, false); err != nil {
		return err
	}
	if c.runningControlPlanes() == 0 {
		c.closeServer()
		return nil
	}
	return c.electLeader(ctx)
}

// startMachine powers a stopped machine on again; kubeadm has nothing to do then.
func (c *cluster) startMachine(ctx context.Context, name string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	state, ok := c.machines[name]
	if !ok {
		return missing("no machine with node %s at %s", name, c.endpoint)
	}
	if err := c.putNode(ctx, state.machine, state.controlPlane); err != nil {
		return err
	}
	state.running = true
	if !state.controlPlane {
		return nil
	}
	if err := c.addEtcdMember(ctx, name); err != nil {
		return err
	}
	if err := c.putControlPlanePods(ctx, state.machine, true); err != nil {
		return err
	}
	return c.serve()
}

// destroyMachine ends a machine for good. Its Node object stays, not ready,
// until somebody deletes it, as it does without a cloud controller. Destroying
// a machine that is not there is no error.
func (c *cluster) destroyMachine(ctx context.Context, name string) error {
	c.lock.Lock()
	state, ok := c.machines[name]
	if !ok {
		c.lock.Unlock()
		return nil
	}
	err := c.powerOff(ctx, state)
	if err == nil {
		delete(c.machines, name)
		err = c.collectPods(ctx, name)
	}
	last := state.controlPlane && !slices.ContainsFunc(c.states(), func(s *machineState) bool { return s.controlPlane })
	if last && err == nil {
		c.end()
	}
	c.lock.Unlock()
	if err != nil {
		return err
	}
	if last {
		c.gone()
	}
	return nil
}

// nodeDeleted follows the deletion of a Node object through the API: the pods
// of a machine that no longer runs are collected, as the pod garbage collector does.
func (c *cluster) nodeDeleted(ctx context.Context, name string) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if _, ok := c.machines[name]; ok || c.ended {
		return nil
	}
	return c.collectPods(ctx, name)
}

// drop ends the cluster whatever it still has.
func (c *cluster) drop() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.end()
}

// end makes the cluster one that is not there for all who have found it
// already: they would ask for objects that go next. The lock is held.
func (c *cluster) end() {
	c.ended = true
	clear(c.machines)
	c.closeServer()
}

func (c *cluster) states() []*machineState {
	states := make([]*machineState, 0, len(c.machines))
	for _, state := range c.machines {
		states = append(states, state)
	}
	slices.SortFunc(states, func(a, b *machineState) int { return strings.Compare(a.NodeName, b.NodeName) })
	return states
}

func (c *cluster) runningControlPlanes() int {
	count := 0
	for _, state := range c.machines {
		if state.controlPlane && state.running {
			count++
		}
	}
	return count
}

// nodeView is one node or machine, for tests: a machine without a registered
// node was deleted from the API, a node without a machine was destroyed.
type nodeView struct {
	Name         string   `json:"name"`
	ControlPlane bool     `json:"controlPlane"`
	Machine      string   `json:"machine"` // running, stopped or none
	Registered   bool     `json:"registered"`
	Ready        bool     `json:"ready"`
	ProviderID   string   `json:"providerID,omitempty"`
	Addresses    []string `json:"addresses,omitempty"`
}

type clusterView struct {
	Endpoint    string     `json:"endpoint"`
	Serving     bool       `json:"serving"`
	Nodes       []nodeView `json:"nodes"`
	EtcdMembers []string   `json:"etcdMembers"`
}

func (c *cluster) view() (clusterView, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	if c.ended {
		return clusterView{}, missing("no workload cluster at %s", c.endpoint)
	}
	ctx := context.Background()
	nodes, err := list[corev1.Node](ctx, c, "Node")
	if err != nil {
		return clusterView{}, err
	}
	byName := map[string]nodeView{}
	for _, state := range c.machines {
		power := "stopped"
		if state.running {
			power = "running"
		}
		byName[state.NodeName] = nodeView{Name: state.NodeName, ControlPlane: state.controlPlane, Machine: power}
	}
	for i := range nodes {
		node := &nodes[i]
		view, ok := byName[node.Name]
		if !ok {
			view = nodeView{Name: node.Name, Machine: "none"}
		}
		_, view.ControlPlane = node.Labels[controlPlaneLabel]
		view.Registered = true
		view.Ready = nodeIsReady(node)
		view.ProviderID = node.Spec.ProviderID
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				view.Addresses = append(view.Addresses, address.Address)
			}
		}
		byName[node.Name] = view
	}
	view := clusterView{Endpoint: c.endpoint, Serving: c.server != nil, Nodes: []nodeView{}, EtcdMembers: []string{}}
	for _, node := range byName {
		view.Nodes = append(view.Nodes, node)
	}
	slices.SortFunc(view.Nodes, func(a, b nodeView) int { return strings.Compare(a.Name, b.Name) })
	members, err := c.etcdMembers(ctx)
	if err != nil {
		return clusterView{}, err
	}
	for _, pod := range members {
		view.EtcdMembers = append(view.EtcdMembers, pod.Spec.NodeName)
	}
	slices.Sort(view.EtcdMembers)
	return view, nil
}

// list lists core objects by their kind. What a client has patched is stored
// without its type, and a typed list would fail on it.
func list[T any](ctx context.Context, c *cluster, kind string, options ...client.ListOption) ([]T, error) {
	found := &unstructured.UnstructuredList{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
	if err := c.objects.List(ctx, found, options...); err != nil {
		return nil, err
	}
	objects := make([]T, len(found.Items))
	for i := range found.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Items[i].Object, &objects[i]); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// put creates an object, or brings the stored one to its state.
func (c *cluster) put(ctx context.Context, object client.Object) error {
	err := c.objects.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	stored := object.DeepCopyObject().(client.Object)
	if err := c.objects.Get(ctx, client.ObjectKeyFromObject(object), stored); err != nil {
		return err
	}
	object.SetResourceVersion(stored.GetResourceVersion())
	object.SetUID(stored.GetUID())
	return c.objects.Update(ctx, object)
}
