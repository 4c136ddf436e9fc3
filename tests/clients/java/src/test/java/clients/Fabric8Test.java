package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Checks fabric8's client against the cluster of KUBECONFIG: informers, edit, wait, server-side apply. */
@Timeout(60)
class Fabric8Test {
    private static KubernetesClient client;
    private static String namespace;

    @BeforeAll
    static void connect() {
        client = new KubernetesClientBuilder().build();
        var created = new NamespaceBuilder().withNewMetadata().withGenerateName("fabric8-").endMetadata().build();
        namespace = client.namespaces().resource(created).create().getMetadata().getName();
    }

    @Test
    void informerFollowsObjects() throws InterruptedException {
        var maps = client.configMaps().inNamespace(namespace).withLabel("check", "informer");
        create("before");
        var events = new LinkedBlockingQueue<String>();
        try (var informer = maps.inform(new ResourceEventHandler<>() {
            @Override
            public void onAdd(ConfigMap map) {
                events.add("added " + map.getMetadata().getName());
            }

            @Override
            public void onUpdate(ConfigMap old, ConfigMap map) {
                events.add("updated " + map.getMetadata().getName() + " to " + map.getData());
            }

            @Override
            public void onDelete(ConfigMap map, boolean finalStateUnknown) {
                events.add("deleted " + map.getMetadata().getName());
            }
        })) {
            assertEquals("added before", next(events));
            create("after");
            assertEquals("added after", next(events));
            client.configMaps().inNamespace(namespace).withName("after").edit(
                    map -> new ConfigMapBuilder(map).addToData("key", "value").build());
            assertEquals("updated after to {key=value}", next(events));
            assertEquals(Map.of("key", "value"), informer.getIndexer().getByKey(namespace + "/after").getData());
            client.configMaps().inNamespace(namespace).withName("after").delete();
            assertEquals("deleted after", next(events));
            assertNull(informer.getIndexer().getByKey(namespace + "/after"));
        }
    }

    @Test
    void editedDeploymentRollsOut() {
        var deployments = client.apps().deployments().inNamespace(namespace);
        deployments.resource(web("nginx:1.27")).create();
        var web = deployments.withName("web");
        web.waitUntilReady(30, TimeUnit.SECONDS);
        // edits fail with a conflict while the controller writes the status, so each waits for the end of the rollout
        web.waitUntilCondition(deployment -> complete(deployment, 1), 30, TimeUnit.SECONDS);
        var edited = web.edit(
                deployment -> new DeploymentBuilder(deployment).editSpec().withReplicas(3).endSpec().build());
        assertEquals(3, edited.getSpec().getReplicas());
        web.waitUntilCondition(deployment -> complete(deployment, 3), 30, TimeUnit.SECONDS);
        web.rolling().updateImage("nginx:1.28");
        web.waitUntilCondition(deployment -> complete(deployment, 3), 30, TimeUnit.SECONDS);
        var images = client.pods().inNamespace(namespace).withLabel("app", "web").list().getItems().stream()
                .filter(pod -> pod.getMetadata().getDeletionTimestamp() == null)
                .map(pod -> pod.getSpec().getContainers().get(0).getImage())
                .toList();
        assertEquals(List.of("nginx:1.28", "nginx:1.28", "nginx:1.28"), images);
    }

    private static boolean complete(Deployment deployment, int replicas) {
        var status = deployment.getStatus();
        return Objects.equals(status.getObservedGeneration(), deployment.getMetadata().getGeneration())
                && Objects.equals(status.getUpdatedReplicas(), replicas)
                && Objects.equals(status.getReplicas(), replicas)
                && Objects.equals(status.getAvailableReplicas(), replicas);
    }

    @Test
    void podIsReadyAndThenDeleted() {
        var pod = new PodBuilder()
                .withNewMetadata().withName("alone").endMetadata()
                .withNewSpec().addNewContainer().withName("main").withImage("nginx:1.27").endContainer().endSpec()
                .build();
        var pods = client.pods().inNamespace(namespace);
        pods.resource(pod).create();
        var ready = pods.withName("alone").waitUntilReady(30, TimeUnit.SECONDS);
        assertNotNull(ready.getStatus().getPodIP());
        assertEquals("first line\nsecond line\n", pods.withName("alone").getLog());
        pods.withName("alone").withGracePeriod(0).delete();
        assertNull(pods.withName("alone").waitUntilCondition(deleted -> deleted == null, 30, TimeUnit.SECONDS));
    }

    @Test
    void serverSideApplyOfASecondManagerConflicts() {
        var first = client.resource(labelled("shared", "first"));
        first.fieldManager("first").serverSideApply();
        var second = client.resource(labelled("shared", "second"));
        var conflict = assertThrows(
                KubernetesClientException.class, () -> second.fieldManager("second").serverSideApply());
        assertEquals(409, conflict.getCode());
        var forced = second.fieldManager("second").forceConflicts().serverSideApply();
        assertEquals(Map.of("owner", "second"), forced.getData());
    }

    private static ConfigMap labelled(String name, String owner) {
        return new ConfigMapBuilder()
                .withNewMetadata().withName(name).withNamespace(namespace).endMetadata()
                .addToData("owner", owner)
                .build();
    }

    private static Deployment web(String image) {
        return new DeploymentBuilder()
                .withNewMetadata().withName("web").endMetadata()
                .withNewSpec()
                .withReplicas(1)
                .withNewSelector().addToMatchLabels("app", "web").endSelector()
                .withNewTemplate()
                .withNewMetadata().addToLabels("app", "web").endMetadata()
                .withNewSpec().addNewContainer().withName("web").withImage(image).endContainer().endSpec()
                .endTemplate()
                .endSpec()
                .build();
    }

    private static void create(String name) {
        var map = new ConfigMapBuilder()
                .withNewMetadata().withName(name).addToLabels("check", "informer").endMetadata()
                .build();
        client.configMaps().inNamespace(namespace).resource(map).create();
    }

    private static String next(BlockingQueue<String> events) throws InterruptedException {
        return events.poll(30, TimeUnit.SECONDS);
    }
}
