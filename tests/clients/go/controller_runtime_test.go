package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const finalizer = "clients.example.com/secret"

// Site is the custom resource of crds/sites.yaml.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

type SiteSpec struct {
	Host string `json:"host,omitempty"`
}

type SiteStatus struct {
	Ready bool `json:"ready,omitempty"`
}

func (s *Site) DeepCopyObject() runtime.Object {
	site := *s
	site.ObjectMeta = *s.ObjectMeta.DeepCopy()
	return &site
}

type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

func (l *SiteList) DeepCopyObject() runtime.Object {
	list := SiteList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		list.Items = append(list.Items, *l.Items[i].DeepCopyObject().(*Site))
	}
	return &list
}

var version = schema.GroupVersion{Group: "clients.example.com", Version: "v1"}

func scheme(t *testing.T) *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypes(version, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme
}

// defaulter sets the host of sites; checker refuses hosts with spaces.
type defaulter struct{}

func (defaulter) Default(_ context.Context, site *Site) error {
	if site.Spec.Host == "" {
		site.Spec.Host = site.Name + ".example.com"
	}
	return nil
}

type checker struct{}

func (checker) check(site *Site) error {
	if strings.Contains(site.Spec.Host, " ") {
		return errors.New("a host has no spaces")
	}
	return nil
}

func (c checker) ValidateCreate(_ context.Context, site *Site) (admission.Warnings, error) {
	return admission.Warnings{"checked"}, c.check(site)
}

func (c checker) ValidateUpdate(_ context.Context, _, site *Site) (admission.Warnings, error) {
	return nil, c.check(site)
}

func (checker) ValidateDelete(context.Context, *Site) (admission.Warnings, error) { return nil, nil }

// reconciler creates a Secret for each Site, and deletes it with a finalizer.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var site Site
	if err := r.Get(ctx, request.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	if !site.DeletionTimestamp.IsZero() {
		if err := client.IgnoreNotFound(r.Delete(ctx, secret)); err != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(&site, finalizer)
		return ctrl.Result{}, r.Update(ctx, &site)
	}
	if controllerutil.AddFinalizer(&site, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &site)
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, secret, func() error {
		secret.StringData = map[string]string{"host": site.Spec.Host}
		return controllerutil.SetControllerReference(&site, secret, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	site.Status.Ready = true
	return ctrl.Result{}, r.Status().Update(ctx, &site)
}

func TestManagerReconcilesWithWebhooks(t *testing.T) {
	ctx := deadline(t)
	options := environment.WebhookInstallOptions
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme(t),
		Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{
			Host: options.LocalServingHost, Port: options.LocalServingPort, CertDir: options.LocalServingCertDir,
		}),
		LeaderElection: true, LeaderElectionID: "clients.example.com", LeaderElectionNamespace: "default",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewWebhookManagedBy(manager, &Site{}).WithDefaulter(defaulter{}).WithValidator(checker{}).Complete(); err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(&Site{}).Owns(&corev1.Secret{}).Complete(reconciler{manager.GetClient()}); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})

	direct, err := client.New(config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	site := &Site{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	eventually(t, ctx, func() error { return direct.Create(ctx, site) }) // until the webhook server listens
	if site.Spec.Host != "one.example.com" {
		t.Fatalf("the webhook did not set the host: %q", site.Spec.Host)
	}
	eventually(t, ctx, func() error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(site), site); err != nil {
			return err
		}
		if !site.Status.Ready {
			return errors.New("the site is not ready")
		}
		return nil
	})
	var secret corev1.Secret
	if err := direct.Get(ctx, client.ObjectKeyFromObject(site), &secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data["host"]) != "one.example.com" || !metav1.IsControlledBy(&secret, site) {
		t.Fatalf("wrong secret: %v", secret)
	}

	refused := &Site{ObjectMeta: metav1.ObjectMeta{Name: "two", Namespace: "default"}, Spec: SiteSpec{Host: "a b"}}
	err = direct.Create(ctx, refused)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "admission webhook \"checks.clients.example.com\" denied the request: a host has no spaces") {
		t.Fatalf("not refused: %v", err)
	}

	if err := direct.Delete(ctx, site); err != nil {
		t.Fatal(err)
	}
	eventually(t, ctx, func() error {
		if err := direct.Get(ctx, client.ObjectKeyFromObject(site), site); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the site exists: %v", err)
		}
		return nil
	})
	if err := direct.Get(ctx, client.ObjectKeyFromObject(site), &secret); !apierrors.IsNotFound(err) {
		t.Fatalf("the secret exists: %v", err)
	}
}

func TestUserHasThePermissionsOfItsRole(t *testing.T) {
	ctx := deadline(t)
	admin, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: "default"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers", Namespace: "default"},
		Subjects:   []rbacv1.Subject{{Kind: "Group", Name: "readers", APIGroup: rbacv1.GroupName}},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "reader", APIGroup: rbacv1.GroupName},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := admin.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	user, err := environment.AddUser(envtest.User{Name: "jane", Groups: []string{"readers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	jane, err := client.New(user.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, ctx, func() error { return jane.List(ctx, &corev1.ConfigMapList{}, client.InNamespace("default")) })
	err = jane.List(ctx, &corev1.SecretList{}, client.InNamespace("default"))
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "jane" cannot list resource "secrets" in API group "" in the namespace "default"`) {
		t.Fatalf("not refused: %v", err)
	}
}
