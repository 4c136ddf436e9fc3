//! Sites, written for kube-rs: a ConfigMap and a Deployment for each Site, and its status.

use std::{collections::BTreeMap, fs::File, io::Write, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{ConfigMap, Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
    runtime::{
        Controller,
        controller::{Action, Config},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(CustomResource, Clone, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "bench.example.com", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
pub struct SiteSpec {
    image: String,
    replicas: i32,
    text: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SiteStatus {
    ready_replicas: i32,
    conditions: Vec<Condition>,
}

struct State {
    client: Client,
    count: File,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("the reconcile was not counted: {0}")]
    Count(#[from] std::io::Error),
}

async fn reconcile(site: Arc<Site>, state: Arc<State>) -> Result<Action, Error> {
    (&state.count).write_all(b".")?;
    if site.metadata.deletion_timestamp.is_some() {
        return Ok(Action::await_change());
    }
    let (name, namespace) = (site.name_any(), site.namespace().unwrap_or_default());
    let manager = PatchParams::apply("sites").force();
    let config_maps: Api<ConfigMap> = Api::namespaced(state.client.clone(), &namespace);
    config_maps.patch(&name, &manager, &Patch::Apply(config_map_of(&site))).await?;
    let deployments: Api<Deployment> = Api::namespaced(state.client.clone(), &namespace);
    let deployment = deployments.patch(&name, &manager, &Patch::Apply(deployment_of(&site))).await?;
    let status = status_of(&site, &deployment);
    if site.status.as_ref() != Some(&status) {
        let sites: Api<Site> = Api::namespaced(state.client.clone(), &namespace);
        sites.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    Ok(Action::await_change())
}

fn metadata(site: &Site) -> ObjectMeta {
    ObjectMeta {
        name: site.metadata.name.clone(),
        owner_references: Some(site.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    }
}

fn config_map_of(site: &Site) -> ConfigMap {
    ConfigMap {
        metadata: metadata(site),
        data: Some(BTreeMap::from([("index.html".to_owned(), site.spec.text.clone())])),
        ..ConfigMap::default()
    }
}

fn deployment_of(site: &Site) -> Deployment {
    let labels = BTreeMap::from([("site".to_owned(), site.name_any())]);
    let web = Container { name: "web".to_owned(), image: Some(site.spec.image.clone()), ..Container::default() };
    Deployment {
        metadata: metadata(site),
        spec: Some(DeploymentSpec {
            replicas: Some(site.spec.replicas),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![web], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn status_of(site: &Site, deployment: &Deployment) -> SiteStatus {
    let ready_replicas = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let (status, reason) = match ready_replicas >= site.spec.replicas {
        true => ("True", "MinimumReplicasAvailable"),
        false => ("False", "ReplicasMissing"),
    };
    let present = site.status.as_ref().and_then(|present| present.conditions.first());
    let last_transition_time = match present {
        Some(condition) if condition.status == status => condition.last_transition_time.clone(),
        _ => Time(Timestamp::from_second(Timestamp::now().as_second()).expect("a second of now")),
    };
    let ready = Condition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        last_transition_time,
        observed_generation: site.metadata.generation,
    };
    SiteStatus { ready_replicas, conditions: vec![ready] }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).init();
    let client = Client::try_default().await?;
    let path = std::env::var("RECONCILES")?;
    let count = File::options().append(true).create(true).open(path)?;
    Controller::new(Api::<Site>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client.clone()), watcher::Config::default())
        .with_config(Config::default().concurrency(10))
        .shutdown_on_signal()
        .run(
            reconcile,
            |_, error, _| {
                tracing::warn!(%error, "reconcile failed");
                Action::requeue(Duration::from_secs(1))
            },
            Arc::new(State { client, count }),
        )
        .for_each(async |_| ())
        .await;
    Ok(())
}
