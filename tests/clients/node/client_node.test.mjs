// Checks @kubernetes/client-node against the cluster of KUBECONFIG: informer, logs, exec and server-side apply.
// The cluster runs pods, with the logs and commands of ../answers.yaml.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough, Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  AppsV1Api, CoreV1Api, Exec, KubeConfig, Log, PatchStrategy, makeInformer, setHeaderOptions,
} from '@kubernetes/client-node';

const TIMEOUT = { timeout: 60_000 }; // milliseconds per test
const config = new KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(CoreV1Api);
let namespace;

before(async () => {
  const created = await core.createNamespace({ body: { metadata: { generateName: 'client-node-' } } });
  namespace = created.metadata.name;
});

test('informer follows objects', TIMEOUT, async (t) => {
  const create = (name) => core.createNamespacedConfigMap({ namespace, body: { metadata: { name } } });
  await create('before');
  const list = () => core.listNamespacedConfigMap({ namespace });
  const informer = makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);
  const events = new PassThrough({ objectMode: true });
  for (const verb of ['add', 'update', 'delete']) {
    informer.on(verb, (map) => events.write(`${verb} ${map.metadata.name}`));
  }
  const fail = (error) => events.destroy(error);
  informer.on('error', fail);
  t.after(() => {
    informer.off('error', fail); // the informer reports its own stop as an error
    return informer.stop();
  });
  const expectEvent = async (expected) => {
    for await (const event of events.iterator({ destroyOnReturn: false })) {
      if (event === expected) return;
    }
  };
  await informer.start();
  await expectEvent('add before');
  await create('after');
  await expectEvent('add after');
  await core.replaceNamespacedConfigMap({
    name: 'after', namespace, body: { metadata: { name: 'after' }, data: { key: 'value' } },
  });
  await expectEvent('update after');
  assert.equal(informer.get('after', namespace).data.key, 'value');
  await core.deleteNamespacedConfigMap({ name: 'after', namespace });
  await expectEvent('delete after');
  assert.equal(informer.get('after', namespace), undefined);
});

test('applied Deployment runs its pods', TIMEOUT, async () => {
  const apps = config.makeApiClient(AppsV1Api);
  const labels = { app: 'web' };
  const body = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace },
    spec: {
      replicas: 2,
      selector: { matchLabels: labels },
      template: { metadata: { labels }, spec: { containers: [{ name: 'web', image: 'nginx:1.27' }] } },
    },
  };
  const options = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);
  await apps.patchNamespacedDeployment({ name: 'web', namespace, body, fieldManager: 'client-node' }, options);
  for (;;) {
    const { status } = await apps.readNamespacedDeployment({ name: 'web', namespace });
    if (status.availableReplicas === 2) break;
    await sleep(50);
  }
  const pods = await core.listNamespacedPod({ namespace, labelSelector: 'app=web' });
  assert.deepEqual(pods.items.map((pod) => pod.status.phase), ['Running', 'Running']);
});

test('logs and exec reach a running pod', TIMEOUT, async (t) => {
  const body = { metadata: { name: 'shell' }, spec: { containers: [{ name: 'main', image: 'busybox:1.37' }] } };
  await core.createNamespacedPod({ namespace, body });
  for (;;) {
    const { status } = await core.readNamespacedPod({ name: 'shell', namespace });
    if (status.phase === 'Running') break;
    await sleep(50);
  }

  await t.test('logs', async () => {
    const output = new PassThrough();
    await new Log(config).log(namespace, 'shell', 'main', output);
    assert.equal(await text(output), 'first line\nsecond line\n');
  });

  await t.test('followed logs', async () => {
    const output = new PassThrough();
    const request = await new Log(config).log(namespace, 'shell', 'main', output, { follow: true, tailLines: 1 });
    const [chunk] = await once(output, 'data');
    request.abort();
    assert.equal(chunk.toString(), 'second line\n');
  });

  await t.test('exec with input', async () => {
    const { status, stdout } = await execute(['cat'], 'typed\n');
    assert.equal(stdout, 'typed\n');
    assert.equal(status.status, 'Success');
  });

  await t.test('exit code of exec', async () => {
    const { status, stderr } = await execute(['fail']);
    assert.equal(stderr, 'refused\n');
    assert.equal(status.reason, 'NonZeroExitCode');
    assert.deepEqual(status.details.causes, [{ reason: 'ExitCode', message: '3' }]);
  });
});

async function execute(command, input) {
  const output = { stdout: '', stderr: '' };
  const collect = (name) => new Writable({
    write(chunk, _, done) {
      output[name] += chunk;
      done();
    },
  });
  const stdin = input === undefined ? null : Readable.from([input]);
  const status = await new Promise((resolve, reject) => {
    new Exec(config)
      .exec(namespace, 'shell', 'main', command, collect('stdout'), collect('stderr'), stdin, false, resolve)
      .catch(reject);
  });
  return { status, ...output };
}
