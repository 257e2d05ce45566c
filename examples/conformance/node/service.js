// A small fenced service: values under names, one file each. No dependencies; node service.js
//
// The rule: a token below the fence is refused. The fence and the value are in one file, which is replaced as a whole and
// synced before the answer, so neither a kill nor a power loss can part them. Everything between looking at the fence and
// the answer happens without a pause (the functions ending in Sync), so no other request comes between.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const DIR = path.join(process.env.CONFORM_DIR || '.', 'items');
const PORT = Number(process.env.CONFORM_PORT || 8080);
const LARGEST_TOKEN = (1n << 64n) - 1n;
const LARGEST_BODY = 1 << 20;

fs.mkdirSync(DIR, { recursive: true });

function fileOf(name) {
  // A hash, because names may be longer than file names, and differ only in case.
  return path.join(DIR, crypto.createHash('sha256').update(name).digest('hex'));
}

function load(name) {
  try {
    const { fence, value } = JSON.parse(fs.readFileSync(fileOf(name), 'utf8'));
    return { fence: fence === null ? null : BigInt(fence), value };
  } catch (error) {
    if (error.code === 'ENOENT') return { fence: null, value: null };
    throw error;
  }
}

function save(name, { fence, value }) {
  const file = fileOf(name);
  const text = JSON.stringify({ name, fence: fence.toString(), value });
  const handle = fs.openSync(`${file}.new`, 'w');
  try {
    fs.writeFileSync(handle, text);
    fs.fsyncSync(handle);
  } finally {
    fs.closeSync(handle);
  }
  fs.renameSync(`${file}.new`, file);
  const directory = fs.openSync(DIR, 'r');
  try {
    fs.fsyncSync(directory);
  } finally {
    fs.closeSync(directory);
  }
}

class Refusal extends Error {
  constructor(status, body) {
    super(body.error);
    this.status = status;
    this.body = body;
  }
}

function tokenOf(request) {
  // Node joins a header that is sent twice with a comma, which is no number either.
  const text = request.headers['fence-token'];
  if (text === undefined) throw new Refusal(428, { error: 'token-missing' });
  if (!/^(0|[1-9][0-9]{0,19})$/.test(text)) throw new Refusal(400, { error: 'token-malformed' });
  const token = BigInt(text);
  if (token > LARGEST_TOKEN) throw new Refusal(400, { error: 'token-too-large' });
  return token;
}

function shown(fence) {
  return fence === null ? null : fence.toString();
}

function admit(item, token) {
  if (item.fence !== null && token < item.fence) {
    throw new Refusal(409, { error: 'stale', fence: shown(item.fence) });
  }
}

// What a request does, once its body has arrived: returns the answer.
function handle(request, body) {
  const match = /^\/items\/([^/?#;]+)(\/claim)?$/.exec(request.url);
  if (!match) throw new Refusal(404, { error: 'no-such-path' });
  let name;
  try {
    name = decodeURIComponent(match[1]);
  } catch {
    throw new Refusal(400, { error: 'name-malformed' });
  }
  const item = load(name);
  const call = `${request.method}${match[2] ? ' claim' : ''}`;
  if (call === 'GET') {
    if (request.headers['fence-token'] !== undefined) admit(item, tokenOf(request));
    return { value: item.value, fence: shown(item.fence) };
  }
  if (!['PUT', 'DELETE', 'POST claim'].includes(call)) throw new Refusal(405, { error: 'no-such-method' });
  const token = tokenOf(request);
  admit(item, token);
  if (call === 'PUT') {
    let sent;
    try {
      sent = JSON.parse(body);
    } catch {
      throw new Refusal(400, { error: 'body-malformed' });
    }
    if (sent === null || typeof sent.value !== 'string') throw new Refusal(400, { error: 'value-missing' });
    if ('expect' in sent && sent.expect !== item.value) {
      throw new Refusal(412, { error: 'mismatch', current: item.value });
    }
    item.value = sent.value;
  }
  if (call === 'DELETE') item.value = null;
  item.fence = token;
  save(name, item);
  return { value: item.value, fence: shown(item.fence) };
}

const server = http.createServer((request, response) => {
  const pieces = [];
  let size = 0;
  const answer = (status, body) => {
    const text = JSON.stringify(body);
    response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(text) });
    response.end(text);
  };
  request.on('data', (piece) => {
    size += piece.length;
    if (size <= LARGEST_BODY) pieces.push(piece);
  });
  // The fence is looked at when the whole request is here, not when it begins.
  request.on('end', () => {
    if (size > LARGEST_BODY) return answer(413, { error: 'body-too-large' });
    try {
      answer(200, handle(request, Buffer.concat(pieces).toString('utf8')));
    } catch (error) {
      if (error instanceof Refusal) return answer(error.status, error.body);
      console.error(error);
      answer(500, { error: 'unknown' });
    }
  });
});

server.listen(PORT, '127.0.0.1');
