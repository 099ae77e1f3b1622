// Where a part stands that a rerun may move. While Streamlit puts a component into another place, the old element and the
// new one ask for its part in any order; it stands in the one that asked last of those that are still there. Where none
// is, it waits a moment for another before it counts as gone: it keeps what was zoomed, typed or had the focus.

const MOMENT_MS = 1000;

export class Home {
  constructor(root, moved = () => {}) {
    this.root = root;
    this.moved = moved; // called when it stands in another element
    this.parents = []; // who asks for it, the last one last
    this.focused = null; // what in it has the focus, which a browser takes from whatever is moved
    root.addEventListener('focusin', ({ target }) => { this.focused = target; });
    root.addEventListener('focusout', () => setTimeout(() => {
      // On its way from one element to another it stands nowhere; where it does, the focus was taken elsewhere.
      if (root.isConnected && !root.contains(document.activeElement)) this.focused = null;
    }));
  }

  /** Puts the part into an element. */
  enter(parent) {
    this.parents = [...this.parents.filter((one) => one !== parent), parent];
    if (this.root.parentElement !== parent) this.move(parent);
  }

  /** An element is gone. Calls `gone` a moment later, unless another has asked for the part by then. */
  leave(parent, gone) {
    this.parents = this.parents.filter((one) => one !== parent);
    const next = this.parents.at(-1);
    if (next && this.root.parentElement === parent) this.move(next);
    if (!next) setTimeout(() => { if (!this.parents.length) gone(); }, MOMENT_MS);
  }

  move(parent) {
    const { focused } = this;
    parent.replaceChildren(this.root);
    if (focused?.isConnected && document.activeElement === document.body) focused.focus({ preventScroll: true });
    this.moved();
  }
}
