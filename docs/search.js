/* How the search of the site ranks pages: guides, then the reference, then design pages. */

var Scorer = {
  // What a page's folder adds: a guide that mentions a word comes before a page of
  // design that has it in a title.
  score: ([page, , , , score]) => {
    if (/^(tutorials|how-to|explanation)\//.test(page)) return score + 6;
    if (/^(generated\/(design\/|CHANGELOG|contract-tests)|releasing)/.test(page))
      return score - 20;
    return score;
  },
  // The others are Sphinx's own.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
