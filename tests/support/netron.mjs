// Opens models with Netron's own code, as the viewer does, and prints what it would show of them.
//
// node netron.mjs FOLDER < paths
//
// FOLDER holds Netron's scripts and a package.json that makes them modules. Standard input has a path a
// line; standard output gets a line of JSON for each: {error} or {format, inputs, outputs, nodes}.

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import * as path from "node:path";
import { pathToFileURL } from "node:url";

const folder = path.resolve(process.argv[2]);
const script = (name) => import(pathToFileURL(path.join(folder, name)).href);
const base = await script("base.js");
const view = await script("view.js");

const host = {
  require: (id) => script(`${id}.js`),
  asset: async (name) => fs.readFileSync(path.join(folder, name), "utf-8"),
  event: () => {},
  exception: (error) => { throw error; },
  get: () => null,
};

class File {
  constructor(name) {
    this.identifier = path.basename(name);
    this.name = this.identifier;
    this.stream = new base.BinaryStream(new Uint8Array(fs.readFileSync(name)));
    this.entries = new Map();
  }

  asset(name) { return host.asset(name); }
  require(id) { return host.require(id); }
  error(error) { throw error; }
  async fetch() { throw new Error("no other file is to be asked for"); }
}

const plain = (value) => (typeof value === "bigint" ? Number(value) : value);
const values = (args) => args.flatMap((argument) => argument.value.map((value) => ({
  name: value.name,
  type: value.type.dataType,
  shape: value.type.shape.dimensions,
  data: value.initializer ? createHash("sha256").update(value.initializer.values).digest("hex") : null,
})));

function told(model) {
  const [graph] = model.modules;
  const ends = (args) => args.map((argument) => ({ label: argument.name, ...values([argument])[0] }));
  return {
    format: model.format,
    inputs: ends(graph.inputs),
    outputs: ends(graph.outputs),
    nodes: graph.nodes.map((node) => ({
      name: node.name,
      type: node.type.name,
      inputs: values(node.inputs),
      outputs: values(node.outputs),
      attributes: Object.fromEntries(node.attributes.map((one) => [one.name, plain(one.value)])),
    })),
  };
}

const service = new view.ModelFactoryService(host);
for (const name of fs.readFileSync(0, "utf-8").split("\n").filter(Boolean)) {
  let found;
  try {
    found = told(await service.open(new File(name)));
  } catch (error) {
    found = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(found, (_, value) => plain(value))}\n`);
}
