// SPDX-License-Identifier: MIT
// Has speedscope's own importer read a profile, without a browser, and prints what it found as JSON: for each profile
// its name, its frames in the order of their opening, and the time in each frame.
// Usage: node speedscope_import.js FOLDER_OF_THE_PACKAGE PROFILE
//
// The package is one script for a page. It runs here up to the page, for which there is a stand-in that fails; by then
// the importer is loaded. The script keeps it to itself, so that one line is put in front of it, which hands it out.
'use strict'

const fs = require('fs')
const path = require('path')
const vm = require('vm')

const [folder, profilePath] = process.argv.slice(2)
const release = path.join(folder, 'dist', 'release')
const bundles = fs.readdirSync(release).filter(name => /^speedscope-.*\.js$/.test(name))
if (bundles.length !== 1) throw new Error(`one script is expected, there is ${bundles}`)
const source = fs.readFileSync(path.join(release, bundles[0]), 'utf8')

const exported = /(\w+)=\{\};\$?\w+\(\1,\{[^}]*importProfileGroupFromText:/.exec(source)
if (exported === null) throw new Error('the importer is not where it was: look for importProfileGroupFromText')
const loaded = new RegExp(`\\(\\)=>\\((\\w+)\\(\\),${exported[1]}\\)`).exec(source)
if (loaded === null) throw new Error('the loader of the importer is not where it was')
const begin = '"use strict";(()=>{'
if (!source.startsWith(begin)) throw new Error('the script begins otherwise than it did')
const opened = `${begin}globalThis.loadImporter=()=>(${loaded[1]}(),${exported[1]});${source.slice(begin.length)}`

const quiet = {log() {}, warn: console.error, error: console.error, assert: console.assert, time() {}, timeEnd() {}}
const page = {console: quiet, TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, Uint8Array, ArrayBuffer}
page.window = page
page.self = page
page.globalThis = page
vm.createContext(page)
let stopped
try {
  vm.runInContext(opened, page)
} catch (error) {
  stopped = error
}

async function main() {
  if (page.loadImporter === undefined) throw stopped
  const importer = page.loadImporter()
  const group = await importer.importProfileGroupFromText(path.basename(profilePath), fs.readFileSync(profilePath, 'utf8'))
  if (group === null) throw new Error('speedscope does not know this file')
  const profiles = group.profiles.map(profile => {
    const calls = []
    const open = []
    profile.forEachCall(
      (node, value) => {
        open.push({name: node.frame.name, start: value, depth: open.length})
        calls.push(open[open.length - 1])
      },
      (node, value) => {
        open.pop().end = value
      },
    )
    return {name: profile.getName(), unit: profile.getWeightUnit(), calls}
  })
  process.stdout.write(JSON.stringify(profiles))
}

main().catch(error => {
  console.error(error)
  process.exitCode = 1
})
