//! Watchers of kube-runtime, and objects that the cluster's controllers complete.

use anyhow::{Context, bail, ensure};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        wait::{await_condition, conditions},
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;

/// List in pages of one object, then watch.
pub async fn list_and_watch(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let config = watcher::Config::default().labels("check=pages").page_size(1);
    follow_config_maps(client, namespace, "pages", config).await
}

/// Receive the list from the watch itself (sendInitialEvents), which ends with a bookmark.
pub async fn streamed_list(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let config = watcher::Config::default().labels("check=streamed").streaming_lists();
    follow_config_maps(client, namespace, "streamed", config).await
}

async fn follow_config_maps(
    client: &Client,
    namespace: &str,
    check: &str,
    config: watcher::Config,
) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let create = async |name: String| {
        let map = json!({"metadata": {"name": name, "labels": {"check": check}}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await.context("create")
    };
    create(format!("{check}-1")).await?;
    create(format!("{check}-2")).await?;

    let mut events = std::pin::pin!(watcher(maps.clone(), config).default_backoff());
    ensure!(matches!(next(&mut events).await?, Event::Init), "the first event is not Init");
    let mut listed = Vec::new();
    loop {
        match next(&mut events).await? {
            Event::InitApply(map) => listed.push(map.name_any()),
            Event::InitDone => break,
            event => bail!("{event} in the list"),
        }
    }
    listed.sort();
    ensure!(listed == [format!("{check}-1"), format!("{check}-2")], "the list has {listed:?}");

    create(format!("{check}-3")).await?;
    let event = next(&mut events).await?;
    ensure!(matches!(&event, Event::Apply(map) if map.name_any() == format!("{check}-3")), "{event} after a create");
    let data = Patch::Merge(json!({"data": {"key": "value"}}));
    maps.patch(&format!("{check}-1"), &PatchParams::default(), &data).await?;
    let event = next(&mut events).await?;
    let changed = matches!(&event, Event::Apply(map) if map.data.as_ref().is_some_and(|data| data["key"] == "value"));
    ensure!(changed, "{event} after a patch");
    maps.delete(&format!("{check}-2"), &DeleteParams::default()).await?;
    let event = next(&mut events).await?;
    ensure!(matches!(&event, Event::Delete(map) if map.name_any() == format!("{check}-2")), "{event} after a delete");
    Ok(())
}

async fn next<K>(events: &mut (impl Stream<Item = watcher::Result<Event<K>>> + Unpin)) -> anyhow::Result<Event<K>> {
    events.next().await.context("the watcher has ended")?.context("watcher")
}

/// Apply a Deployment, wait until its rollout is complete, and detect the conflict of a second field manager.
pub async fn apply_and_wait(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = |replicas: i32| {
        Patch::Apply(json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
                },
            },
        }))
    };
    deployments.patch("web", &PatchParams::apply("first"), &deployment(2)).await?;
    await_condition(deployments.clone(), "web", conditions::is_deployment_completed()).await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let running: Vec<Pod> = pods.list(&ListParams::default().labels("app=web")).await?.items;
    ensure!(running.len() == 2, "{} pods of 2 replicas", running.len());

    match deployments.patch("web", &PatchParams::apply("second"), &deployment(3)).await {
        Err(kube::Error::Api(status)) => ensure!(status.is_conflict(), "a second manager's apply: {status}"),
        other => bail!("no conflict of the second manager: {:?}", other.map(|deployment| deployment.name_any())),
    }
    deployments.patch("web", &PatchParams::apply("second").force(), &deployment(3)).await?;
    let watched = watcher(pods, watcher::Config::default().labels("app=web")).default_backoff().applied_objects();
    let mut bound = std::pin::pin!(watched.try_filter(|pod| {
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        std::future::ready(bound)
    }));
    let mut names = std::collections::BTreeSet::new();
    while names.len() < 3 {
        names.insert(bound.try_next().await?.context("the watcher has ended")?.name_any());
    }
    Ok(())
}
