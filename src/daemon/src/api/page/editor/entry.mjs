// What the page gets of CodeMirror: one function that puts an editor into an element. Bundled into ../editor.js by ./build.mjs.mjs;
// see README.md.
//
// It must never need a style or a script that the page's Content-Security-Policy forbids: the editor lives in a shadow root,
// where its styles go by adoptedStyleSheets, and its colours are the page's CSS variables.
import { closeBrackets, closeBracketsKeymap } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands'
import { javascript } from '@codemirror/lang-javascript'
import { python } from '@codemirror/lang-python'
import {
  HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting,
} from '@codemirror/language'
import { shell } from '@codemirror/legacy-modes/mode/shell'
import { Compartment, EditorState } from '@codemirror/state'
import {
  EditorView, drawSelection, highlightActiveLine, highlightActiveLineGutter, keymap, lineNumbers,
} from '@codemirror/view'
import { tags } from '@lezer/highlight'

const LANGUAGES = {
  python: () => [python(), indentUnit.of('    ')],
  typescript: () => [javascript({ typescript: true }), indentUnit.of('  ')],
  javascript: () => [javascript(), indentUnit.of('  ')],
  sh: () => [StreamLanguage.define(shell), indentUnit.of('  ')],
  bash: () => [StreamLanguage.define(shell), indentUnit.of('  ')],
}

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: 'var(--code-keyword)' },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: 'var(--code-string)' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: 'var(--code-number)' },
  { tag: tags.comment, color: 'var(--code-comment)', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: 'var(--code-function)' },
  { tag: [tags.typeName, tags.className, tags.namespace], color: 'var(--code-type)' },
  { tag: tags.standard(tags.variableName), color: 'var(--code-function)' },
  { tag: tags.invalid, color: 'var(--bad)' },
])

const look = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'transparent', maxHeight: 'var(--editor-most)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', fontSize: 'var(--code-size)', lineHeight: '1.6' },
  '.cm-content, .cm-gutter': { minHeight: 'var(--editor-least)' },
  '.cm-content': { padding: '10px 0', caretColor: 'var(--text)' },
  '.cm-line': { padding: '0 14px 0 10px' },
  '.cm-gutters': { backgroundColor: 'transparent', color: 'var(--faint)', border: 'none', paddingLeft: '6px' },
  '.cm-activeLine': { backgroundColor: 'transparent' },
  '.cm-activeLineGutter': { backgroundColor: 'transparent', color: 'var(--text)' },
  '&.cm-focused .cm-activeLine': { backgroundColor: 'var(--line)' },
  '&.cm-focused .cm-cursor': { borderLeftColor: 'var(--text)', borderLeftWidth: '2px' },
  '.cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {
    background: 'var(--selection)',
  },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--selection)', outline: 'none' },
})

// What is typed over a selection is put in here: the browser, doing it, would style what it puts in, and be refused.
const typedOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { from, to, empty } = view.state.selection.main
    if (event.inputType !== 'insertText' || !event.data || !event.cancelable || view.composing || empty) return false
    const insert = () => view.state.update(view.state.replaceSelection(event.data), { userEvent: 'input.type', scrollIntoView: true })
    const handlers = view.state.facet(EditorView.inputHandler)
    if (!handlers.some(handle => handle(view, from, to, event.data, insert))) view.dispatch(insert())
    event.preventDefault()
    return true
  },
})

// Puts an editor into `place`. `label` is its name for assistive technology, `onChange` hears of every change of the text,
// and `onRun` of Ctrl+Enter (Cmd+Enter).
export function createEditor(place, { label, onChange, onRun }) {
  const root = place.attachShadow({ mode: 'open', delegatesFocus: true })
  const language = new Compartment()
  const run = () => (onRun(), true)
  const extensions = [
    lineNumbers(), highlightActiveLineGutter(), highlightActiveLine(), history(), drawSelection(), indentOnInput(),
    bracketMatching(), closeBrackets(), syntaxHighlighting(colours), look, typedOver,
    language.of([]),
    EditorState.tabSize.of(4),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({
      'aria-label': label, spellcheck: 'false', autocorrect: 'off', autocapitalize: 'off', enterkeyhint: 'enter',
      tabindex: '0',
    }),
    keymap.of([
      { key: 'Mod-Enter', run },
      ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab,
    ]),
    EditorView.updateListener.of(update => update.docChanged && onChange()),
  ]
  const view = new EditorView({ parent: root, root, state: EditorState.create({ doc: '', extensions }) })
  return {
    get text() {
      return view.state.doc.toString()
    },
    // One step, which Ctrl+Z takes back.
    set text(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 } })
      view.scrollDOM.scrollTop = 0
    },
    set language(name) {
      const support = Object.hasOwn(LANGUAGES, name) ? LANGUAGES[name]() : []
      view.dispatch({ effects: language.reconfigure(support) })
    },
    focus() {
      view.focus()
    },
  }
}
