// Package sampleapiserver runs Kubernetes' sample-apiserver as an aggregated API server of the cluster of KUBECONFIG.
//
// Authentication and authorization are delegated to the cluster, as its README describes; the sample-apiserver and its
// etcd run in this process.
package sampleapiserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	wardle "k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/cmd/server"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
)

const (
	namespace = "wardle"
	account   = "apiserver"
	group     = "wardle.example.com"
)

var (
	config      *rest.Config
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	flunders    = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "flunders"}
)

func TestSampleAPIServer(t *testing.T) {
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		t.Fatalf("KUBECONFIG names no cluster: %v", err)
	}
	config.QPS = -1
	grantRoles(t)
	stop := startServer(t)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		eventually(t, func() error { return available(version) })
	}
	t.Run("discovery", testDiscovery)
	t.Run("typed client", testTypedClient)
	t.Run("server-side apply", testServerSideApply)
	t.Run("admission", testAdmission)
	t.Run("authorization", testAuthorization)
	t.Run("OpenAPI", testOpenAPI)
	t.Run("kubectl", testKubectl)
	stop()
	_, err = flunderClient(t).WardleV1alpha1().Flunders("default").List(t.Context(), meta.ListOptions{})
	if !errors.IsServiceUnavailable(err) {
		t.Errorf("after the end of the server: %v", err)
	}
}

// grantRoles creates the account of the server with the roles that its manifests bind.
func grantRoles(t *testing.T) {
	ctx, client := t.Context(), kubernetes.NewForConfigOrDie(config)
	subjects := []rbac.Subject{{Kind: "ServiceAccount", Name: account, Namespace: namespace}}
	read := []string{"get", "list", "watch"}
	_, err := client.CoreV1().Namespaces().Create(ctx, &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
	check(t, err)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: account}}, meta.CreateOptions{})
	check(t, err)
	_, err = client.RbacV1().ClusterRoles().Create(ctx, &rbac.ClusterRole{
		ObjectMeta: meta.ObjectMeta{Name: "aggregated-apiserver"},
		Rules: []rbac.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: read},
			{APIGroups: []string{"admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"}, Resources: []string{"*"}, Verbs: read},
		},
	}, meta.CreateOptions{})
	check(t, err)
	for _, role := range []string{"system:auth-delegator", "aggregated-apiserver"} {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbac.ClusterRoleBinding{
			ObjectMeta: meta.ObjectMeta{Name: "wardle:" + role},
			RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   subjects,
		}, meta.CreateOptions{})
		check(t, err)
	}
	_, err = client.RbacV1().RoleBindings("kube-system").Create(ctx, &rbac.RoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: "wardle-auth-reader"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
		Subjects:   subjects,
	}, meta.CreateOptions{})
	check(t, err)
}

// startServer runs etcd and the sample-apiserver, registers it, and returns a function that ends both.
func startServer(t *testing.T) (stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	kubeconfig := accountKubeconfig(t)
	etcd := startEtcd(t)
	options := server.NewWardleServerOptions(os.Stdout, os.Stderr)
	options.RecommendedOptions.SecureServing.Listener = listener
	ctx, cancel := context.WithCancel(context.Background())
	command := server.NewCommandStartWardleServer(ctx, options, false)
	command.SetArgs([]string{
		"--etcd-servers=http://" + etcd.Clients[0].Addr().String(), "--cert-dir=" + t.TempDir(),
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	})
	ended := make(chan error, 1)
	go func() { ended <- command.Execute() }()
	register(t, listener.Addr().(*net.TCPAddr).Port)
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the sample-apiserver: %v", err)
		}
		etcd.Close()
	}
}

func startEtcd(t *testing.T) *embed.Etcd {
	address := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	settings := embed.NewConfig()
	settings.Dir, settings.LogLevel, settings.UnsafeNoFsync = t.TempDir(), "error", true
	settings.ListenClientUrls, settings.AdvertiseClientUrls = []url.URL{address}, []url.URL{address}
	settings.ListenPeerUrls, settings.AdvertisePeerUrls = []url.URL{address}, []url.URL{address}
	settings.InitialCluster = settings.InitialClusterFromName(settings.Name)
	etcd, err := embed.StartEtcd(settings)
	check(t, err)
	<-etcd.Server.ReadyNotify()
	return etcd
}

// accountKubeconfig returns a file with a token of the server's account.
func accountKubeconfig(t *testing.T) string {
	accounts := kubernetes.NewForConfigOrDie(config).CoreV1().ServiceAccounts(namespace)
	token, err := accounts.CreateToken(t.Context(), account, &authentication.TokenRequest{}, meta.CreateOptions{})
	check(t, err)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	check(t, clientcmd.WriteToFile(api.Config{
		Clusters: map[string]*api.Cluster{"c": {
			Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos:      map[string]*api.AuthInfo{"a": {Token: token.Status.Token}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "c", AuthInfo: "a"}},
		CurrentContext: "x",
	}, file))
	return file
}

// register creates the Service, at an address of this machine, and the APIServices.
func register(t *testing.T, port int) {
	_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Services(namespace).Create(t.Context(), &core.Service{
		ObjectMeta: meta.ObjectMeta{Name: "api"},
		Spec:       core.ServiceSpec{Type: core.ServiceTypeExternalName, ExternalName: "localhost"},
	}, meta.CreateOptions{})
	check(t, err)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		_, err = dynamic.NewForConfigOrDie(config).Resource(apiServices).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1",
			"kind":       "APIService",
			"metadata":   map[string]any{"name": version + "." + group},
			"spec": map[string]any{
				"group": group, "version": version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
				"insecureSkipTLSVerify": true,
				"service":               map[string]any{"name": "api", "namespace": namespace, "port": int64(port)},
			},
		}}, meta.CreateOptions{})
		check(t, err)
	}
}

func available(version string) error {
	service, err := dynamic.NewForConfigOrDie(config).Resource(apiServices).Get(context.Background(), version+"."+group, meta.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(service.Object, "status", "conditions")
	for _, condition := range conditions {
		if condition.(map[string]any)["status"] == "True" {
			return nil
		}
	}
	return fmt.Errorf("%s is not available: %v", version, conditions)
}

// --- checks ---------------------------------------------------------------------------------------------------------

func testDiscovery(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config).Discovery()
	_, lists, err := client.ServerGroupsAndResources()
	check(t, err)
	var names []string
	for _, list := range lists {
		for _, resource := range list.APIResources {
			if strings.HasPrefix(list.GroupVersion, group) {
				names = append(names, list.GroupVersion+" "+resource.Kind)
			}
		}
	}
	slices.Sort(names)
	expected := []string{group + "/v1alpha1 Fischer", group + "/v1alpha1 Flunder", group + "/v1beta1 Flunder"}
	if !slices.Equal(names, expected) {
		t.Errorf("discovery has %q", names)
	}
}

func testTypedClient(t *testing.T) {
	ctx, client := t.Context(), flunderClient(t).WardleV1alpha1().Flunders("default")
	events, err := client.Watch(ctx, meta.ListOptions{})
	check(t, err)
	defer events.Stop()
	created, err := client.Create(ctx, &wardle.Flunder{
		ObjectMeta: meta.ObjectMeta{Name: "typed"}, Spec: wardle.FlunderSpec{Reference: "other"},
	}, meta.CreateOptions{})
	check(t, err)
	if created.Spec.ReferenceType == nil || *created.Spec.ReferenceType != wardle.FlunderReferenceType {
		t.Errorf("the defaults of the sample-apiserver are missing: %+v", created.Spec)
	}
	created.Labels = map[string]string{"a": "b"}
	_, err = client.Update(ctx, created, meta.UpdateOptions{})
	check(t, err)
	check(t, client.Delete(ctx, "typed", meta.DeleteOptions{}))
	for _, expected := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		select {
		case event := <-events.ResultChan():
			if event.Type != expected {
				t.Fatalf("%s instead of %s", event.Type, expected)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("the watch has no event %s", expected)
		}
	}
}

func testServerSideApply(t *testing.T) {
	client := dynamic.NewForConfigOrDie(config).Resource(flunders).Namespace("default")
	apply := func(manager, reference string) error {
		_, err := client.Apply(t.Context(), "applied", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1alpha1", "kind": "Flunder",
			"metadata": map[string]any{"name": "applied"}, "spec": map[string]any{"reference": reference},
		}}, meta.ApplyOptions{FieldManager: manager})
		return err
	}
	check(t, apply("first", "a"))
	if err := apply("second", "b"); !errors.IsConflict(err) {
		t.Errorf("no conflict: %v", err)
	}
}

func testAdmission(t *testing.T) {
	ctx, client := t.Context(), flunderClient(t).WardleV1alpha1()
	_, err := client.Fischers().Create(ctx, &wardle.Fischer{
		ObjectMeta: meta.ObjectMeta{Name: "fischer"}, DisallowedFlunders: []string{"banned"},
	}, meta.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		banned := &wardle.Flunder{ObjectMeta: meta.ObjectMeta{Name: "banned"}}
		_, err := client.Flunders("default").Create(ctx, banned, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
		if !errors.IsForbidden(err) {
			return fmt.Errorf("not banned: %v", err)
		}
		return nil
	})
}

func testAuthorization(t *testing.T) {
	ctx, client := t.Context(), kubernetes.NewForConfigOrDie(config).RbacV1()
	alice := rest.CopyConfig(config)
	alice.Impersonate = rest.ImpersonationConfig{UserName: "alice"}
	list := func() error {
		_, err := versioned.NewForConfigOrDie(alice).WardleV1alpha1().Flunders("default").List(ctx, meta.ListOptions{})
		return err
	}
	if err := list(); !errors.IsForbidden(err) || !strings.Contains(err.Error(), `User "alice" cannot list resource "flunders"`) {
		t.Errorf("without a role: %v", err)
	}
	_, err := client.Roles("default").Create(ctx, &rbac.Role{
		ObjectMeta: meta.ObjectMeta{Name: "flunders"},
		Rules:      []rbac.PolicyRule{{APIGroups: []string{group}, Resources: []string{"flunders"}, Verbs: []string{"list"}}},
	}, meta.CreateOptions{})
	check(t, err)
	_, err = client.RoleBindings("default").Create(ctx, &rbac.RoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: "flunders"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "flunders"},
		Subjects:   []rbac.Subject{{Kind: "User", APIGroup: rbac.GroupName, Name: "alice"}},
	}, meta.CreateOptions{})
	check(t, err)
	eventually(t, list) // the sample-apiserver stores a refusal for 10 s
}

func testOpenAPI(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(config).Discovery()
	eventually(t, func() error {
		paths, err := client.OpenAPIV3().Paths()
		if err != nil {
			return err
		}
		document, ok := paths["apis/"+group+"/v1alpha1"]
		if !ok {
			return fmt.Errorf("OpenAPI v3 has no %s", group)
		}
		schema, err := document.Schema("application/json")
		if err == nil && !strings.Contains(string(schema), "disallowedFlunders") {
			err = fmt.Errorf("OpenAPI v3 of %s has no Fischer", group)
		}
		return err
	})
	eventually(t, func() error {
		document, err := client.OpenAPISchema()
		if err != nil {
			return err
		}
		for _, definition := range document.GetDefinitions().GetAdditionalProperties() {
			if strings.HasSuffix(definition.GetName(), "wardle.v1alpha1.Fischer") {
				return nil
			}
		}
		return fmt.Errorf("OpenAPI v2 has no Fischer")
	})
}

func testKubectl(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not on the PATH")
	}
	manifest := filepath.Join(t.TempDir(), "flunder.yaml")
	check(t, os.WriteFile(manifest, []byte(`
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: by-kubectl, namespace: default}
spec: {reference: before}
`), 0o600))
	for _, step := range []struct{ command, output string }{
		{"api-resources --api-group=wardle.example.com -o name", "fischers.wardle.example.com"},
		{"explain fischers.disallowedFlunders --api-version=wardle.example.com/v1alpha1", "a list of Flunder.Names"},
		{"apply -f " + manifest, "by-kubectl created"},
		{"edit flunders.v1alpha1.wardle.example.com by-kubectl", "by-kubectl edited"},
		{"get flunders.v1alpha1.wardle.example.com by-kubectl -o jsonpath={.spec.reference}", "after"},
		{"diff -f " + manifest, "before"},
		{"delete -f " + manifest, "by-kubectl"},
	} {
		command := exec.Command("kubectl", strings.Fields(step.command)...)
		command.Env = append(os.Environ(), "KUBE_EDITOR=sed -i s/reference:.before/reference:\\ after/")
		output, err := command.CombinedOutput()
		if !strings.Contains(string(output), step.output) {
			t.Errorf("kubectl %s: %v: %s", step.command, err, output)
		}
	}
}

// --- helpers --------------------------------------------------------------------------------------------------------

func flunderClient(t *testing.T) *versioned.Clientset {
	client, err := versioned.NewForConfig(config)
	check(t, err)
	return client
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits up to a minute until check returns nil, and fails with its last error.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
