//! Checks kube-rs against the cluster of KUBECONFIG: watchers, server-side apply, and a controller with a finalizer.
//! Prints a line per check; the exit code is 1 if one has failed.

mod controller;
mod watcher;

use std::{process::ExitCode, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::PostParams, config::Config};
use serde_json::json;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let config = Config::infer().await.context("KUBECONFIG")?;
    let client = Client::try_from(config)?;
    let namespace = serde_json::from_value(json!({"metadata": {"generateName": "kube-rs-"}}))?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.create(&PostParams::default(), &namespace).await?.name_any();

    let results = [
        ("watcher with list and watch", deadline(watcher::list_and_watch(&client, &namespace)).await),
        ("watcher with a streamed list", deadline(watcher::streamed_list(&client, &namespace)).await),
        ("server-side apply of a Deployment", deadline(watcher::apply_and_wait(&client, &namespace)).await),
        ("controller with a finalizer", deadline(controller::reconcile_until_deleted(&client, &namespace)).await),
    ];
    let mut code = ExitCode::SUCCESS;
    for (check, result) in results {
        match result {
            Ok(()) => println!("kube-rs: {check}: passed"),
            Err(error) => {
                println!("kube-rs: {check}: failed: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

async fn deadline(check: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::time::timeout(DEADLINE, check).await.context("not complete within the deadline")?
}
