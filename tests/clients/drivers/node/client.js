// A client with the Node.js driver: see `_drivers.py`.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const readline = require('node:readline');
const cassandra = require('cassandra-driver');

const { dataTypes } = cassandra.types;
const PATIENCE_MS = 60_000;
const input = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function main() {
  const [host, port, table] = process.argv.slice(2);
  const { columns } = JSON.parse(fs.readFileSync(table, 'utf8'));
  const client = new cassandra.Client({
    contactPoints: [`${host}:${port}`],
    localDataCenter: 'datacenter1',
    credentials: { username: 'admin', password: process.env.PASSWORD },
    encoding: { map: Map },
    policies: { reconnection: new cassandra.policies.reconnection.ConstantReconnectionPolicy(200) },
    queryOptions: { prepare: true },
    refreshSchemaDelay: 50,
    socketOptions: { connectTimeout: PATIENCE_MS, readTimeout: PATIENCE_MS },
  });
  await client.connect();
  await types(client, columns);
  await pages(client);
  await batches(client);
  await conditions(client);
  await metadata(client, columns);
  await events(client, 'announced');
  await restart(client);
  await events(client, 'announced_again');
  await client.shutdown();
}

async function types(client, columns) {
  const names = columns.map(column => column.name).join(', ');
  const marks = columns.map(() => ', ?').join('');
  const write = (id, values) => client.execute(`INSERT INTO shop.kinds (id, ${names}) VALUES (?${marks})`, [id, ...values]);
  const select = id => client.execute(`SELECT ${names} FROM shop.kinds WHERE id = ?`, [id]);
  const kinds = (await select(0)).columns.map(column => column.type);
  const read = async id => (await select(id)).first().values();
  let expected;
  for (const row of [0, 1]) {
    expected = columns.map((column, i) => native(kinds[i], column.values[row][1]));
    assert.deepStrictEqual(await read(row), expected);
    await write(10 + row, expected);
    await write(12, expected);
    // The driver binds null for an empty list.
    expected = expected.map(value => Array.isArray(value) && value.length === 0 ? null : value);
    assert.deepStrictEqual(await read(10 + row), expected);
  }
  await write(12, columns.map(() => cassandra.types.unset));
  assert.deepStrictEqual(await read(12), expected);
  await write(12, columns.map(() => null));
  assert.deepStrictEqual(await read(12), columns.map(() => null));
}

// Returns a value of the table as the driver returns it.
function native({ code, info }, value) {
  if (value === null) {
    return null;
  }
  switch (code) {
    case dataTypes.list:
    case dataTypes.set:
      return value.map(item => native(info, item));
    case dataTypes.map:
      return new Map(value.map(([key, item]) => [native(info[0], key), native(info[1], item)]));
    case dataTypes.tuple:
      return new cassandra.types.Tuple(...value.map((element, i) => native(info[i], element)));
    case dataTypes.udt:
      return Object.fromEntries(info.fields.map(({ name, type }, i) => [name, native(type, value[i])]));
    case dataTypes.bigint:
      return cassandra.types.Long.fromString(value);
    case dataTypes.blob:
      return Buffer.from(value, 'hex');
    case dataTypes.date:
      return new cassandra.types.LocalDate(value);
    case dataTypes.decimal:
      return cassandra.types.BigDecimal.fromString(value);
    case dataTypes.duration:
    case dataTypes.custom: // A duration, in version 4 of the protocol.
      return new cassandra.types.Duration(value[0], value[1], cassandra.types.Long.fromString(value[2]));
    case dataTypes.inet:
      return cassandra.types.InetAddress.fromString(value);
    case dataTypes.time:
      return new cassandra.types.LocalTime(cassandra.types.Long.fromString(value));
    case dataTypes.timestamp:
      return new Date(value);
    case dataTypes.timeuuid:
      return cassandra.types.TimeUuid.fromString(value);
    case dataTypes.uuid:
      return cassandra.types.Uuid.fromString(value);
    case dataTypes.varint:
      return cassandra.types.Integer.fromString(value);
    default:
      return value;
  }
}

async function pages(client) {
  await client.execute(
    'CREATE TABLE shop.readings (device text, at int, note text, PRIMARY KEY (device, at)) ' +
    'WITH CLUSTERING ORDER BY (at DESC)');
  const query = 'INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)';
  for (let first = 0; first < 1000; first += 100) {
    const batch = Array.from({ length: 100 }, (_, i) => ({ query, params: ['clock', first + i, `note ${first + i}`] }));
    await client.batch(batch, { prepare: true, logged: false });
  }
  const select = 'SELECT at, note FROM shop.readings WHERE device = ?';
  const found = [];
  let fetched = 0;
  let pageState;
  do {
    const page = await client.execute(select, ['clock'], { prepare: true, fetchSize: 100, pageState });
    found.push(...page.rows.map(row => [row.at, row.note]));
    fetched += 1;
    pageState = page.pageState;
  } while (pageState);
  assert.deepStrictEqual(found, Array.from({ length: 1000 }, (_, i) => [999 - i, `note ${999 - i}`]));
  assert.ok(fetched === 10 || fetched === 11, `${fetched} pages`);
}

async function batches(client) {
  await client.execute('CREATE TABLE shop.hits (page text PRIMARY KEY, hits counter)');
  const query = 'INSERT INTO shop.readings (device, at, note) VALUES (?, ?, ?)';
  await client.batch([{ query, params: ['one', 1, 'a'] }, { query, params: ['two', 2, null] }], { prepare: true });
  // Without preparation, statements with and without values go into one batch.
  const three = "INSERT INTO shop.readings (device, at) VALUES ('three', 3)";
  await client.batch([three, { query, params: ['four', 4, 'd'] }], { prepare: false, hints: [null, ['text', 'int', 'text']] });
  const some = "SELECT device, note FROM shop.readings WHERE device IN ('one', 'two', 'three', 'four')";
  const notes = Object.fromEntries((await client.execute(some)).rows.map(row => [row.device, row.note]));
  assert.deepStrictEqual(notes, { four: 'd', one: 'a', three: null, two: null });
  const count = 'UPDATE shop.hits SET hits = hits + ? WHERE page = ?';
  const counts = [{ query: count, params: [5, 'a'] }, { query: count, params: [-7, 'b'] }];
  await client.batch(counts, { prepare: true, counter: true });
  const hits = (await client.execute('SELECT page, hits FROM shop.hits')).rows.map(row => [row.page, Number(row.hits)]);
  assert.deepStrictEqual(hits.sort(), [['a', 5], ['b', -7]]);
}

async function conditions(client) {
  await client.execute('CREATE TABLE shop.locks (name text PRIMARY KEY, owner int)');
  const take = 'INSERT INTO shop.locks (name, owner) VALUES (?, ?) IF NOT EXISTS';
  assert.strictEqual((await client.execute(take, ['door', 1])).wasApplied(), true);
  let refused = await client.execute(take, ['door', 2]);
  assert.strictEqual(refused.wasApplied(), false);
  assert.deepStrictEqual(refused.first().values(), [false, 'door', 1]);
  const give = 'UPDATE shop.locks SET owner = ? WHERE name = ? IF owner = ?';
  refused = await client.execute(give, [3, 'door', 2]);
  assert.strictEqual(refused.wasApplied(), false);
  assert.deepStrictEqual(refused.first().values(), [false, 1]);
  assert.strictEqual((await client.execute(give, [3, 'door', 1])).wasApplied(), true);
  assert.strictEqual(await owner(client), 3);
}

async function owner(client) {
  return (await client.execute('SELECT owner FROM shop.locks WHERE name = ?', ['door'])).first().owner;
}

async function metadata(client, columns) {
  const kinds = await client.metadata.getTable('shop', 'kinds');
  const names = columns.map(column => column.name);
  assert.deepStrictEqual(kinds.columns.map(column => column.name).sort(), ['id', ...names].sort());
  const { code, info } = kinds.columnsByName.map_lists.type;
  assert.deepStrictEqual([code, info[0].code, info[1].code], [dataTypes.map, dataTypes.int, dataTypes.list]);
  const place = await client.metadata.getUdt('shop', 'place');
  assert.deepStrictEqual(place.fields.map(field => field.name), ['street', 'number']);
  const readings = await client.metadata.getTable('shop', 'readings');
  assert.deepStrictEqual(readings.partitionKeys.map(column => column.name), ['device']);
  assert.deepStrictEqual(readings.clusteringOrder, ['DESC']);
}

async function events(client, name) {
  const table = () => client.metadata.getTable('shop', name);
  // The driver reads a table again after an event only.
  assert.strictEqual(await table(), null);
  await ask(`CREATE TABLE shop.${name} (id int PRIMARY KEY)`);
  await until('a created table', async () => await table() !== null);
  await ask(`ALTER TABLE shop.${name} ADD note text`);
  await until('an added column', async () => (await table()).columnsByName.note !== undefined);
  await ask(`DROP TABLE shop.${name}`);
  await until('a dropped table', async () => await table() === null);
}

async function restart(client) {
  assert.strictEqual(await owner(client), 3);
  await ask('restart');
  await until('a connection', async () => await owner(client) === 3);
}

// Asks the test to restart the server, or to run a statement as another client.
async function ask(request) {
  console.log(request);
  assert.strictEqual((await input.next()).value, 'done');
}

// Repeats an attempt until it returns true.
async function until(purpose, attempt) {
  for (const deadline = Date.now() + PATIENCE_MS; ;) {
    try {
      if (await attempt()) {
        return;
      }
    } catch (error) {
      if (Date.now() > deadline) {
        throw error;
      }
    }
    assert.ok(Date.now() < deadline, purpose);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
