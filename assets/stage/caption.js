// What happens in the picture at a moment, as a sentence.

import { count } from './numbers.js';
import { DECODE, PREFIX } from './scene.js';

/** The sentence for a scene; `focus` is the layer and head looked at, `isSeen` whether their attention can be drawn. */
export function caption({ steps, facts }, scene, focus, t, { isSeen }) {
  if (scene.step === null) return t('act_empty');
  const step = steps[scene.step];
  const values = {
    ...focus,
    n: count(step.n_tokens),
    new: count(step.new),
    layers: facts.n_layers,
    reached: Math.max(1, Math.ceil(scene.rows * facts.n_layers)),
  };
  if (step.phase === 'prefill') return t(scene.share ? 'act_prefill' : 'act_prefill_done', values);
  if (step.phase === 'recompute') {
    if (!scene.share) return t('act_recompute_done', values);
    return t(scene.share < PREFIX.cleared ? 'act_recompute_cleared' : 'act_recompute', values);
  }
  if (!scene.share) return t(isSeen ? 'act_decode_done' : 'act_decode_done_unseen', values);
  const part = Object.keys(DECODE).find((name) => scene.share < DECODE[name]) ?? 'dropped';
  return t(`act_${part}`, values);
}
