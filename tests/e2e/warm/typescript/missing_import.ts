// A package that is not there, and a name that a package does not have.
import { readFileSync } from 'node:fs';
import express from 'express';
console.log(readFileSync, express);
