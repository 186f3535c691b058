// Drives the client library of WebSocket MQ for a test: one command in each line of standard input, one outcome in each
// line of standard output, in any order. Arguments: the directory that has node_modules.
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const directory = process.argv[2]
const load = path => import(pathToFileURL(`${directory}/node_modules/${path}`))
const { createClient, createBatchClient } = await load('@delight-rpc/websocket/lib/index.js')
const { CustomError } = await load('@blackglory/errors/lib/index.js')
const { createBatchProxy } = await load('delight-rpc/lib/index.js')
const { WebSocket } = await load('ws/wrapper.mjs')

// As the client of WebSocket MQ declares them.
class QueueNotFound extends CustomError {}
class MessageNotFound extends CustomError {}
class SlotNotFound extends CustomError {}
class DuplicateMessage extends CustomError {}
class DuplicateMessageId extends CustomError {}
class BadMessageState extends CustomError {}
const CLASSES = {
  Error, CustomError, QueueNotFound, MessageNotFound, SlotNotFound, DuplicateMessage, DuplicateMessageId, BadMessageState
}

const sockets = {}
const clients = {}
const batchClients = {}
const aborts = {}

function say(id, outcome) {
  process.stdout.write(JSON.stringify({ id, ...outcome }) + '\n')
}

function shown(error) {
  const { name, message } = error
  const classes = Object.keys(CLASSES).filter(one => error instanceof CLASSES[one])
  return { name, message, classes }
}

const commands = {
  connect({ name, url, options }) {
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url)
      sockets[name] = socket
      socket.once('error', reject)
      socket.once('open', () => {
        const merged = { expectedVersion: '^0.7.0', ...options }
        clients[name] = createClient(socket, merged)[0]
        batchClients[name] = createBatchClient(socket, merged)[0]
        resolve(null)
      })
    })
  }
, async call({ id, name, method, params }) {
    const controller = new AbortController()
    aborts[id] = controller
    try {
      return await clients[name][method](...params, controller.signal)
    } finally {
      delete aborts[id]
    }
  }
, async batch({ name, calls, parallel }) {
    const proxy = createBatchProxy()
    const requests = calls.map(({ method, params }) => proxy[method](...params))
    const client = batchClients[name]
    const results = await (parallel ? client.parallel(...requests) : client.series(...requests))
    return results.map(one => {
      try {
        return { result: one.unwrap() }
      } catch (error) {
        return { error: shown(error) }
      }
    })
  }
, abort({ of }) {
    aborts[of]?.abort()
    return null
  }
, close({ name }) {
    return new Promise(resolve => {
      sockets[name].once('close', code => resolve(code))
      sockets[name].close()
    })
  }
, closed({ name }) {
    return new Promise(resolve => {
      if (sockets[name].readyState === WebSocket.CLOSED) resolve(null)
      else sockets[name].once('close', code => resolve(code))
    })
  }
, terminate({ name }) {
    sockets[name].terminate()
    return null
  }
}

createInterface({ input: process.stdin }).on('line', async line => {
  const command = JSON.parse(line)
  try {
    say(command.id, { result: await commands[command.command](command) ?? null })
  } catch (error) {
    say(command.id, { error: shown(error) })
  }
}).on('close', () => process.exit())
