// The AWS SDK for JavaScript, version 3, on Node. The same lines in and out as app.py.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

// The packages are in a cache directory, not beside this file.
const require = createRequire(process.env.NODE_PACKAGES + '/')
const sdk = require('@aws-sdk/client-s3')
const { BUCKET: Bucket, AWS_ENDPOINT_URL: endpoint, AWS_REGION: region, WHO } = process.env
const client = new sdk.S3Client({ endpoint, region, forcePathStyle: true })
const part = Buffer.alloc(5 << 20, 'x')

const put = (Key, Body) => client.send(new sdk.PutObjectCommand({ Bucket, Key, Body }))

async function multipart() {
  const Key = 'large'
  const { UploadId } = await client.send(new sdk.CreateMultipartUploadCommand({ Bucket, Key }))
  const Parts = []
  for (const PartNumber of [1, 2]) {
    const sent = await client.send(new sdk.UploadPartCommand({ Bucket, Key, UploadId, PartNumber, Body: part }))
    Parts.push({ PartNumber, ETag: sent.ETag, ChecksumCRC32: sent.ChecksumCRC32 })
  }
  await client.send(new sdk.CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }))
}

async function deleteObjects() {
  const Objects = [{ Key: 'to-delete-1' }, { Key: 'to-delete-2' }]
  const answer = await client.send(new sdk.DeleteObjectsCommand({ Bucket, Delete: { Objects } }))
  for (const error of answer.Errors ?? []) throw new Error(`${error.Code}: ${error.Message}`)
}

async function prepare() {
  for (const name of ['source', 'to-delete', 'to-delete-1', 'to-delete-2']) await put(name, name)
}

const operations = {
  PutObject: () => put('small', WHO),
  'PutObject, empty': () => put('empty', ''),
  'PutObject, 8 MiB': () => put('eight', Buffer.alloc(8 << 20, WHO)),
  'two parts': multipart,
  CopyObject: () => client.send(new sdk.CopyObjectCommand({ Bucket, Key: 'copy', CopySource: `${Bucket}/source` })),
  DeleteObject: () => client.send(new sdk.DeleteObjectCommand({ Bucket, Key: 'to-delete' })),
  DeleteObjects: deleteObjects,
}
const read = async () => (await client.send(new sdk.GetObjectCommand({ Bucket, Key: 'small' }))).Body.transformToString()
const answer = (members) => process.stdout.write(JSON.stringify(members) + '\n')

await prepare()
answer({ version: require('@aws-sdk/client-s3/package.json').version, operations: Object.keys(operations) })
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const value = await { ...operations, read, prepare }[line.trim()]()
    answer({ value: line.trim() === 'read' ? value : null, error: null })
  } catch (error) {
    answer({ value: null, error: `${error.name}: ${error.message}`.slice(0, 2000) })
  }
}
