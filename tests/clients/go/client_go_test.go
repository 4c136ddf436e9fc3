package clients

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apps "k8s.io/client-go/applyconfigurations/apps/v1"
	core "k8s.io/client-go/applyconfigurations/core/v1"
	meta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func clientset(t *testing.T) *kubernetes.Clientset {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestInformerFollowsObjectsWithWatchList(t *testing.T) {
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		t.Fatal("this client-go lists before it watches")
	}
	ctx, clients := deadline(t), clientset(t)
	maps := clients.CoreV1().ConfigMaps("default")
	create := func(name string) *corev1.ConfigMap {
		created, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	create("before")
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps()
	events := make(chan string, 100)
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { events <- "added " + obj.(*corev1.ConfigMap).Name },
		UpdateFunc: func(_, obj any) { events <- "updated " + obj.(*corev1.ConfigMap).Name },
		DeleteFunc: func(obj any) { events <- "deleted " + obj.(*corev1.ConfigMap).Name },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		t.Fatal("the informer did not sync")
	}
	if _, err := informer.Lister().ConfigMaps("default").Get("before"); err != nil {
		t.Fatal(err)
	}
	after := create("after")
	after.Data = map[string]string{"key": "value"}
	if _, err := maps.Update(ctx, after, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "after", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, expected := range []string{"added after", "updated after", "deleted after"} {
		for received := ""; received != expected; {
			select {
			case received = <-events:
			case <-ctx.Done():
				t.Fatalf("no event %q", expected)
			}
		}
	}
}

func deployment(replicas int32) *apps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "web"}
	return apps.Deployment("web", "default").WithSpec(apps.DeploymentSpec().
		WithReplicas(replicas).
		WithSelector(meta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(core.PodTemplateSpec().WithLabels(labels).WithSpec(core.PodSpec().
			WithContainers(core.Container().WithName("web").WithImage("nginx")))))
}

func TestTypedServerSideApply(t *testing.T) {
	ctx, deployments := deadline(t), clientset(t).AppsV1().Deployments("default")
	applied, err := deployments.Apply(ctx, deployment(2), metav1.ApplyOptions{FieldManager: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if *applied.Spec.Replicas != 2 || applied.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		t.Fatalf("wrong deployment: %v", applied.Spec)
	}
	_, err = deployments.Apply(ctx, deployment(3), metav1.ApplyOptions{FieldManager: "two"})
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details.Causes[0].Field != ".spec.replicas" {
		t.Fatalf("no conflict: %v", err)
	}
	forced, err := deployments.Apply(ctx, deployment(3), metav1.ApplyOptions{FieldManager: "two", Force: true})
	if err != nil || *forced.Spec.Replicas != 3 {
		t.Fatalf("not applied: %v, %v", forced, err)
	}
	own, err := apps.ExtractDeployment(forced, "one")
	if err != nil || own.Spec.Replicas != nil || len(own.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("wrong fields of one: %v, %v", own, err)
	}
	var _ *appsv1.Deployment = forced
}

func TestLeaderElectionPassesToTheNextCandidate(t *testing.T) {
	ctx, clients := deadline(t), clientset(t)
	leads := make(chan string, 2)
	candidate := func(name string) context.CancelFunc {
		lock := &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: "leader", Namespace: "default"},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: name},
		}
		running, stop := context.WithCancel(ctx)
		go leaderelection.RunOrDie(running, leaderelection.LeaderElectionConfig{
			Lock: lock, ReleaseOnCancel: true,
			LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 100 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- name },
				OnStoppedLeading: func() {},
			},
		})
		return stop
	}
	expect := func(name string) {
		t.Helper()
		select {
		case leader := <-leads:
			if leader != name {
				t.Fatalf("%s leads instead of %s", leader, name)
			}
		case <-ctx.Done():
			t.Fatalf("%s does not lead", name)
		}
	}
	stop := candidate("first")
	expect("first")
	defer candidate("second")()
	stop()
	expect("second")
	lease, err := clients.CoordinationV1().Leases("default").Get(ctx, "leader", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "second" || *lease.Spec.LeaseTransitions != 1 {
		t.Fatalf("wrong lease: %v, %v", lease, err)
	}
}
