// Ranks search results: guides first, the changelog and other pages about the project last. The weights are Sphinx's.
var Scorer = {
  score: ([page, , , , score]) => score - (page.startsWith("project/") ? 100 : /^(study|research)\//.test(page) ? 5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
