// Sites, written for controller-runtime: a ConfigMap and a Deployment for each Site, and its status.
package main

import (
	"context"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var groupVersion = schema.GroupVersion{Group: "bench.example.com", Version: "v1"}

type SiteReconciler struct {
	client.Client
	count *os.File
}

func (r *SiteReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if _, err := r.count.Write([]byte{'.'}); err != nil {
		return ctrl.Result{}, err
	}
	site := &Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	objectMeta := metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}
	configMap := &corev1.ConfigMap{ObjectMeta: objectMeta}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, configMap, func() error {
		configMap.Data = map[string]string{"index.html": site.Spec.Text}
		return controllerutil.SetControllerReference(site, configMap, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: objectMeta}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"site": site.Name}
		deployment.Spec.Replicas = &site.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		// the fields of the container that the API server has set stay
		containers := &deployment.Spec.Template.Spec.Containers
		if len(*containers) != 1 {
			*containers = make([]corev1.Container, 1)
		}
		(*containers)[0].Name = "web"
		(*containers)[0].Image = site.Spec.Image
		return controllerutil.SetControllerReference(site, deployment, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	old := site.DeepCopyObject().(*Site)
	site.Status.ReadyReplicas = deployment.Status.ReadyReplicas
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "ReplicasMissing", ObservedGeneration: site.Generation,
	}
	if site.Status.ReadyReplicas >= site.Spec.Replicas {
		ready.Status, ready.Reason = metav1.ConditionTrue, "MinimumReplicasAvailable"
	}
	changed := meta.SetStatusCondition(&site.Status.Conditions, ready)
	if !changed && site.Status.ReadyReplicas == old.Status.ReadyReplicas {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Patch(ctx, site, client.MergeFrom(old))
}

func run() error {
	ctrl.SetLogger(zap.New())
	count, err := os.OpenFile(os.Getenv("RECONCILES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(groupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).
		For(&Site{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(&SiteReconciler{Client: mgr.GetClient(), count: count}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		ctrl.Log.Error(err, "the operator has ended")
		os.Exit(1)
	}
}
