// Streamlit calls `show` again for news while it still waits for an earlier call of the same element, and then ends that
// earlier call, although the element stays. So only the newest call of an element can end what it shows.

const newest = new WeakMap(); // by element

/** `show` of a component, for Streamlit to call: `async ({ parentElement, … }) => end or undefined`. */
export function newestEnds(show) {
  return async (component) => {
    const { parentElement } = component;
    const call = {};
    newest.set(parentElement, call);
    const end = await show(component);
    return () => {
      if (newest.get(parentElement) === call) end?.();
    };
  };
}
