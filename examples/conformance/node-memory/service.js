// Deliberately wrong: the value is in a file, the fence only in memory. After a restart every old token is welcome again.
// The suite says so: fencepost conform http --map fencepost.toml
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const DIR = process.env.CONFORM_DIR || '.';
const fences = new Map();

function fileOf(name) {
  return path.join(DIR, crypto.createHash('sha256').update(name).digest('hex'));
}

function load(name) {
  try {
    return fs.readFileSync(fileOf(name), 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return null;
    throw error;
  }
}

function save(name, value) {
  const file = fileOf(name);
  const handle = fs.openSync(`${file}.new`, 'w');
  fs.writeFileSync(handle, value);
  fs.fsyncSync(handle);
  fs.closeSync(handle);
  fs.renameSync(`${file}.new`, file);
}

function handle(request, body) {
  const match = /^\/items\/([^/?#;]+)$/.exec(request.url);
  if (!match) return [404, { error: 'no-such-path' }];
  const name = decodeURIComponent(match[1]);
  const fence = fences.get(name);
  const shown = fence === undefined ? null : fence.toString();
  if (request.method === 'GET') return [200, { value: load(name), fence: shown }];
  if (request.method !== 'PUT') return [405, { error: 'no-such-method' }];
  const text = request.headers['fence-token'] || '';
  if (!/^(0|[1-9][0-9]{0,19})$/.test(text) || BigInt(text) >= 1n << 64n) return [400, { error: 'token-malformed' }];
  if (fence !== undefined && BigInt(text) < fence) return [409, { error: 'stale', fence: shown }];
  save(name, body);
  fences.set(name, BigInt(text));
  return [200, { fence: text }];
}

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on('data', (piece) => pieces.push(piece));
  request.on('end', () => {
    const body = Buffer.concat(pieces);
    const [status, answer] = body.length > 1 << 20 ? [413, {}] : handle(request, body.toString('utf8'));
    const text = JSON.stringify(answer);
    response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
    response.end(text);
  });
});

server.listen(Number(process.env.CONFORM_PORT || 8080), '127.0.0.1');
