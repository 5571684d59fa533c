// Compares the files that provision Grafana with Grafana's own types (@grafana/schema): each dashboard as a
// whole, the options and the field configuration of each panel by its type; and the provisioning files with
// what they name. If there are faults, it prints one a line and exits with 1.
//
//  node dashboard.mjs deploy/grafana
//
// It must never be more lenient than the types: it refuses every unknown field, since Grafana would drop it
// silently.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import Ajv from "ajv";
import { createGenerator } from "ts-json-schema-generator";
import { parse } from "yaml";

const here = dirname(fileURLToPath(import.meta.url));
const types = join(here, "node_modules/@grafana/schema/dist/types");
const grafana = process.argv[2];
const faults = [];

// The types of one file, each as a checker of values.
function checkers(of) {
  const generator = createGenerator({ path: join(types, of), skipTypeCheck: true });
  return (type) => new Ajv({ strict: false, allErrors: true }).compile(generator.createSchema(type));
}

function check(where, valid, value) {
  if (valid(value)) return;
  for (const { instancePath, message, params } of valid.errors) {
    faults.push(`${where}${instancePath} ${message} ${JSON.stringify(params)}`);
  }
}

const kinds = new Map();

// The fields that a panel of this type may have.
function kind(type) {
  if (!kinds.has(type)) {
    const of = `raw/composable/${type}/panelcfg/x/types.gen.d.ts`;
    const custom = /export (interface|type) FieldConfig\b/.test(readFileSync(join(types, of), "utf8"));
    const checker = checkers(of);
    kinds.set(type, { options: checker("Options"), custom: custom ? checker("FieldConfig") : undefined });
  }
  return kinds.get(type);
}

const valid = checkers("raw/dashboard/x/types.gen.d.ts")("Dashboard");
const files = readdirSync(join(grafana, "dashboards"));
if (!files.length) faults.push("there is no dashboard");
for (const file of files) {
  const dashboard = JSON.parse(readFileSync(join(grafana, "dashboards", file), "utf8"));
  check(file, valid, dashboard);
  for (const panel of dashboard.panels.filter((panel) => panel.type !== "row")) {
    const { options, custom } = kind(panel.type);
    check(`${file}, ${panel.title}, options`, options, panel.options);
    const given = panel.fieldConfig?.defaults?.custom;
    if (given === undefined) continue;
    if (custom) check(`${file}, ${panel.title}, custom`, custom, given);
    else faults.push(`${file}, ${panel.title}: a ${panel.type} has no fieldConfig.defaults.custom`);
  }
}

const provisioned = (what) => parse(readFileSync(join(grafana, "provisioning", what, "paddock.yml"), "utf8"));
const { apiVersion: ofSources, datasources } = provisioned("datasources");
const { apiVersion: ofProviders, providers } = provisioned("dashboards");
if (ofSources !== 1 || ofProviders !== 1) faults.push("provisioning: apiVersion is 1");
if (!datasources.some(({ name, type, url }) => name && type === "prometheus" && URL.canParse(url))) {
  faults.push("provisioning: no data source of type prometheus with a url");
}
if (!providers.every(({ name, type, options }) => name && type === "file" && options.path.startsWith("/"))) {
  faults.push("provisioning: a provider has a name, the type file and an absolute options.path");
}

if (faults.length) {
  console.error(faults.join("\n"));
  process.exit(1);
}
console.log("done");
