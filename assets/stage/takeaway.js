// The one sentence that a run's figures prove.

import { count, visible } from './numbers.js';

/** The sentence for the steps shown. */
export function takeaway(steps, t) {
  const [first, newest] = [steps[0], steps[steps.length - 1]];
  const token = newest.token ? visible(newest.token[1]) : '';
  const prompt = count(first.new);
  if (first.phase === 'recompute') {
    if (steps.length === 1) return t('takeaway_first_no_cache', { prompt });
    const computed = steps.reduce((sum, step) => sum + step.new, 0);
    const cached = newest.n_tokens;
    const values = { computed: count(computed), cached: count(cached), times: (computed / cached).toFixed(1) };
    return t('takeaway_no_cache', { steps: steps.length, ...values });
  }
  const passes = first.passes === 1 ? t('in_one_pass') : t('in_passes', { passes: count(first.passes) });
  if (steps.length === 1) return t('takeaway_prefill', { prompt, passes, token });
  const words = steps.length === 2 ? 'takeaway_decode_once' : 'takeaway_decode';
  return t(words, { prompt, passes, steps: count(steps.length - 1), token });
}
