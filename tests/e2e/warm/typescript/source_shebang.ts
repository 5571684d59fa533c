#!/usr/bin/env ts-node
// A shebang, then strict mode and an unused import of types.
"use strict";
import type { Stats } from "node:fs";
const f = (s?: Stats): string => typeof s;
console.log(f(), (function () { return this })() === undefined);
