// Command siteoperator is an operator of Sites, with controller-runtime: for each a DNS record, a Secret, volumes and a
// Deployment. It behaves as tests/operators/site_operator.py. A defect replaces one correct behavior.
//
//	siteoperator [-kubeconfig FILE] [-defect NAME] [-leader-elect]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const finalizer = "faults.example.com/dns"

// Site is the custom resource of tests/operators/crd.yaml.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

type SiteSpec struct {
	Host     string `json:"host,omitempty"`
	Replicas int32  `json:"replicas,omitempty"`
}

type SiteStatus struct {
	Hosts    []string `json:"hosts,omitempty"`
	Ready    int32    `json:"ready"`
	Secret   string   `json:"secret,omitempty"`
	Deployed bool     `json:"deployed,omitempty"`
}

func (s *Site) DeepCopyObject() runtime.Object {
	site := *s
	site.ObjectMeta = *s.ObjectMeta.DeepCopy()
	site.Status.Hosts = append([]string(nil), s.Status.Hosts...)
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

// reconciler holds the Secrets that its cache does not show yet, by UID of the Site, and what defects remember.
type reconciler struct {
	client.Client
	live     client.Reader
	defect   string
	mutex    sync.Mutex
	created  map[types.UID]string
	deployed map[types.UID]bool
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var site Site
	if err := r.Get(ctx, request.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := r.reconcile(ctx, &site)
	if apierrors.IsConflict(err) && r.defect == "conflict-ignored" || apierrors.IsInternalError(err) && r.defect == "error-ignored" {
		err = nil
	}
	return ctrl.Result{}, err
}

func (r *reconciler) reconcile(ctx context.Context, site *Site) error {
	if !site.DeletionTimestamp.IsZero() {
		return r.finalize(ctx, site)
	}
	if r.defect != "missed-deletion" && controllerutil.AddFinalizer(site, finalizer) {
		return r.Update(ctx, site)
	}
	if !contains(site.Status.Hosts, site.Spec.Host) { // before the record, so that it is deleted in any case
		site.Status.Hosts = append(site.Status.Hosts, site.Spec.Host)
		return r.Status().Update(ctx, site)
	}
	if err := r.ensureRecord(ctx, site); err != nil {
		return err
	}
	for _, host := range site.Status.Hosts {
		if host != site.Spec.Host {
			if err := r.deleteRecord(ctx, site.Namespace, host); err != nil {
				return err
			}
		}
	}
	secret, err := r.ensureSecret(ctx, site)
	if err != nil {
		return err
	}
	if err := r.ensureVolumes(ctx, site); err != nil {
		return err
	}
	ready, err := r.ensureDeployment(ctx, site)
	if err != nil {
		return err
	}
	status := SiteStatus{Hosts: []string{site.Spec.Host}, Ready: ready, Secret: secret, Deployed: true}
	if fmt.Sprint(status) == fmt.Sprint(site.Status) {
		return nil
	}
	site.Status = status
	return r.Status().Update(ctx, site)
}

func (r *reconciler) finalize(ctx context.Context, site *Site) error {
	if !controllerutil.RemoveFinalizer(site, finalizer) {
		return nil
	}
	hosts := site.Status.Hosts
	if r.defect == "finalizer-first" {
		if err := r.Update(ctx, site); err != nil {
			return err
		}
	}
	for _, host := range hosts {
		if err := r.deleteRecord(ctx, site.Namespace, host); err != nil {
			return err
		}
	}
	if r.defect == "finalizer-first" {
		return nil
	}
	return client.IgnoreNotFound(r.Update(ctx, site))
}

// isCurrent returns true if the cached Site is not outdated; what cannot be undone needs that.
func (r *reconciler) isCurrent(ctx context.Context, site *Site) (bool, error) {
	if r.defect == "stale-cache-delete" {
		return true, nil
	}
	var current Site
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(site), &current); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return current.UID == site.UID && current.Generation == site.Generation, nil
}

func (r *reconciler) ensureRecord(ctx context.Context, site *Site) error {
	host := site.Spec.Host
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dns-" + host, Namespace: site.Namespace}}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(record), record)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if current, err := r.isCurrent(ctx, site); err != nil || !current {
		return errors.Join(errors.New("the Site may be outdated"), err)
	}
	data := map[string]string{"target": host}
	if r.defect == "config-in-two-writes" {
		if err := r.create(ctx, record, false); err != nil {
			return err
		}
		record.Data = data
		return r.Update(ctx, record)
	}
	record.Data = data
	return r.create(ctx, record, true)
}

func (r *reconciler) deleteRecord(ctx context.Context, namespace, host string) error {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dns-" + host, Namespace: namespace}}
	return client.IgnoreNotFound(r.Delete(ctx, record))
}

func (r *reconciler) ensureSecret(ctx context.Context, site *Site) (string, error) {
	if r.defect == "secret-by-status" && site.Status.Secret != "" {
		return site.Status.Secret, nil
	}
	var secrets corev1.SecretList
	if err := r.List(ctx, &secrets, client.InNamespace(site.Namespace)); err != nil {
		return "", err
	}
	var owned []string
	for i := range secrets.Items {
		if metav1.IsControlledBy(&secrets.Items[i], site) && r.defect != "secret-by-status" {
			owned = append(owned, secrets.Items[i].Name)
		}
	}
	sort.Strings(owned)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if contains(owned, r.created[site.UID]) {
		delete(r.created, site.UID)
	}
	if name := r.created[site.UID]; name != "" && r.defect != "stale-cache-create" {
		return name, nil
	}
	if len(owned) == 0 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: site.Name + "-tls-", Namespace: site.Namespace}}
		if err := controllerutil.SetControllerReference(site, secret, r.Scheme()); err != nil {
			return "", err
		}
		if err := r.create(ctx, secret, false); err != nil {
			return "", err
		}
		r.created[site.UID] = secret.Name
		return secret.Name, nil
	}
	if r.defect != "stale-cache-create" {
		for _, name := range owned[1:] {
			surplus := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: site.Namespace}}
			if err := client.IgnoreNotFound(r.Delete(ctx, surplus)); err != nil {
				return "", err
			}
		}
	}
	return owned[0], nil
}

func (r *reconciler) ensureVolumes(ctx context.Context, site *Site) error {
	var claims corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &claims, client.InNamespace(site.Namespace)); err != nil {
		return err
	}
	existing := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims.Items {
		existing[claims.Items[i].Name] = &claims.Items[i]
	}
	needed := map[string]bool{}
	for number := int32(0); number < site.Spec.Replicas; number++ {
		name := fmt.Sprintf("data-%s-%d", site.Name, number)
		needed[name] = true
		if existing[name] != nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: site.Namespace},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				},
			},
		}
		if err := controllerutil.SetControllerReference(site, claim, r.Scheme()); err != nil {
			return err
		}
		if err := r.create(ctx, claim, true); err != nil {
			return err
		}
	}
	for name, claim := range existing {
		if needed[name] || !metav1.IsControlledBy(claim, site) || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		if current, err := r.isCurrent(ctx, site); err != nil || !current { // a deletion of data needs that
			return err
		}
		if err := client.IgnoreNotFound(r.Delete(ctx, claim)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) ensureDeployment(ctx context.Context, site *Site) (int32, error) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	err := r.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if r.defect == "exists-is-fatal" && !site.Status.Deployed && !r.deployed[site.UID] {
		deployment.ResourceVersion = ""
		err = apierrors.NewNotFound(schema.GroupResource{}, site.Name)
	}
	if err == nil && !metav1.IsControlledBy(deployment, site) {
		return 0, fmt.Errorf("the Deployment %s belongs to another object", site.Name)
	}
	if err == nil {
		if *deployment.Spec.Replicas != site.Spec.Replicas {
			deployment.Spec.Replicas = &site.Spec.Replicas
			if err := r.Update(ctx, deployment); err != nil {
				return 0, err
			}
		}
		return deployment.Status.ReadyReplicas, nil
	}
	labels := map[string]string{"site": site.Name}
	created := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &site.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web"}}},
			},
		},
	}
	if err := controllerutil.SetControllerReference(site, created, r.Scheme()); err != nil {
		return 0, err
	}
	if err := r.create(ctx, created, false); err != nil {
		return 0, err
	}
	r.deployed[site.UID] = true
	return 0, nil
}

// create creates an object; with mayExist, one of the name may exist.
func (r *reconciler) create(ctx context.Context, object client.Object, mayExist bool) error {
	err := r.Create(ctx, object)
	switch {
	case apierrors.IsAlreadyExists(err) && r.defect == "exists-is-fatal":
		fmt.Printf("%s exists\n", object.GetName())
		os.Exit(1)
	case apierrors.IsAlreadyExists(err) && mayExist:
		return nil
	}
	return err
}

// deletedSites deletes the records of Sites whose deletion it sees.
func (r *reconciler) deletedSites() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(deleted event.DeleteEvent) bool {
		if r.defect == "missed-deletion" && !deleted.DeleteStateUnknown {
			for _, host := range deleted.Object.(*Site).Status.Hosts {
				_ = r.deleteRecord(context.Background(), deleted.Object.GetNamespace(), host)
			}
		}
		return true
	}}
}

func contains(names []string, name string) bool {
	for _, entry := range names {
		if entry == name {
			return true
		}
	}
	return false
}

func main() {
	defect := flag.String("defect", "", "the behavior that is wrong")
	elects := flag.Bool("leader-elect", false, "take part in an election")
	flag.Parse() // controller-runtime declares -kubeconfig
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: "faults.example.com", Version: "v1"}
	if err := clientscheme.AddToScheme(scheme); err != nil {
		fail(err)
	}
	scheme.AddKnownTypes(version, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, version)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:         scheme,
		Metrics:        server.Options{BindAddress: "0"},
		Cache:          cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}}},
		LeaderElection: *elects, LeaderElectionID: "faults.example.com", LeaderElectionNamespace: "default",
	})
	if err != nil {
		fail(err)
	}
	r := &reconciler{
		Client: manager.GetClient(), live: manager.GetAPIReader(), defect: *defect,
		created: map[types.UID]string{}, deployed: map[types.UID]bool{},
	}
	controller := ctrl.NewControllerManagedBy(manager)
	controller = controller.For(&Site{}, builder.WithPredicates(r.deletedSites())).Owns(&corev1.Secret{})
	controller = controller.Owns(&corev1.PersistentVolumeClaim{}).Owns(&appsv1.Deployment{})
	if err := controller.Complete(r); err != nil {
		fail(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
