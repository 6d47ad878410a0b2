/* The search of the site ranks guides first, then the reference, then design pages. */

var Scorer = {
  // A page's folder changes its score: a guide that mentions a word ranks above a design
  // page that has the word in a title.
  score: ([page, , , , score]) => {
    if (/^(tutorials|how-to|explanation)\//.test(page)) return score + 6;
    if (/^(generated\/(design\/|CHANGELOG|contract-tests)|releasing)/.test(page))
      return score - 20;
    return score;
  },
  // The other values are Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
