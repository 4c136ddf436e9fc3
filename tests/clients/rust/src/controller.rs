//! An operator as kube-rs users write it: a derived custom resource, whose controller owns a ConfigMap and has a finalizer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, CustomResource, CustomResourceExt, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        Controller,
        controller::Action,
        finalizer::{self, finalizer},
        wait::{await_condition, conditions},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

const FINALIZER: &str = "clients.kubeloop.example/cleanup";

#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "clients.kubeloop.example", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub struct SiteSpec {
    title: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
pub struct SiteStatus {
    published: String,
}

struct State {
    client: Client,
    cleaned: mpsc::UnboundedSender<String>,
}

type ReconcileError = finalizer::Error<kube::Error>;

async fn reconcile(site: Arc<Site>, state: Arc<State>) -> Result<Action, ReconcileError> {
    let namespace = site.namespace().unwrap_or_default();
    let sites = Api::namespaced(state.client.clone(), &namespace);
    finalizer(&sites, FINALIZER, site, async |event| match event {
        finalizer::Event::Apply(site) => publish(&sites, &site, &state.client).await,
        finalizer::Event::Cleanup(site) => {
            // the receiver ends with the check, and the controller with it
            let _ = state.cleaned.send(site.name_any());
            Ok(Action::await_change())
        }
    })
    .await
}

async fn publish(sites: &Api<Site>, site: &Site, client: &Client) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &site.namespace().unwrap_or_default());
    let page = ConfigMap {
        metadata: ObjectMeta {
            name: site.metadata.name.clone(),
            owner_references: Some(site.controller_owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("title".to_owned(), site.spec.title.clone())])),
        ..ConfigMap::default()
    };
    let manager = PatchParams::apply("site-controller");
    maps.patch(&site.name_any(), &manager, &Patch::Apply(&page)).await?;
    let status = json!({
        "apiVersion": Site::api_version(&()),
        "kind": Site::kind(&()),
        "status": SiteStatus { published: site.spec.title.clone() },
    });
    sites.patch_status(&site.name_any(), &manager.force(), &Patch::Apply(status)).await?;
    Ok(Action::await_change())
}

/// Run the controller until its object is published, published again after the loss of its ConfigMap, and deleted.
pub async fn reconcile_until_deleted(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let manager = PatchParams::apply("site-controller");
    definitions.patch(Site::crd_name(), &manager, &Patch::Apply(Site::crd())).await?;
    await_condition(definitions, Site::crd_name(), conditions::is_crd_established()).await?;

    let sites: Api<Site> = Api::namespaced(client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let (cleaned, mut cleanups) = mpsc::unbounded_channel();
    let controller = Controller::new(sites.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(
            reconcile,
            |_, _, _| Action::requeue(Duration::from_millis(100)),
            Arc::new(State { client: client.clone(), cleaned }),
        )
        .for_each(async |_| ());
    let steps = async {
        let created = sites.create(&PostParams::default(), &site("home", "first")).await?;
        wait_for_title(&maps, "first").await?;
        let change = Patch::Merge(json!({"spec": {"title": "second"}}));
        sites.patch("home", &PatchParams::default(), &change).await?;
        wait_for_title(&maps, "second").await?;
        let published = |site: Option<&Site>| {
            site.and_then(|site| site.status.as_ref()).is_some_and(|status| status.published == "second")
        };
        await_condition(sites.clone(), "home", published).await?;

        let page = maps.get("home").await?.uid().context("no uid")?;
        maps.delete("home", &DeleteParams::default()).await?;
        await_condition(maps.clone(), "home", conditions::is_deleted(&page)).await?;
        wait_for_title(&maps, "second").await.context("after the deletion of the ConfigMap")?;

        let page = maps.get("home").await?.uid().context("no uid")?;
        let deleting =
            sites.delete("home", &DeleteParams::default()).await?.left().context("deleted before the cleanup")?;
        anyhow::ensure!(deleting.metadata.deletion_timestamp.is_some(), "no deletionTimestamp despite the finalizer");
        anyhow::ensure!(cleanups.recv().await.as_deref() == Some("home"), "the finalizer's cleanup did not run");
        await_condition(sites, "home", conditions::is_deleted(&created.uid().context("no uid")?)).await?;
        await_condition(maps, "home", conditions::is_deleted(&page)).await.context("garbage collection")?;
        Ok(())
    };
    tokio::select! {
        result = steps => result,
        () = controller => anyhow::bail!("the controller has ended"),
    }
}

fn site(name: &str, title: &str) -> Site {
    Site::new(name, SiteSpec { title: title.to_owned() })
}

async fn wait_for_title(maps: &Api<ConfigMap>, title: &str) -> anyhow::Result<()> {
    let has_title =
        |map: Option<&ConfigMap>| map.and_then(|map| map.data.as_ref()).is_some_and(|data| data["title"] == title);
    await_condition(maps.clone(), "home", has_title).await?;
    Ok(())
}
