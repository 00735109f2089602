// Ranks search results: guides first, the changelog and other pages about the project last. The other weights are Sphinx's.
const RANKS = [
  ["project/", -100],
  ["study/", -5],
  ["reference/", -4],
  ["get_started/", 1],
  ["guides/troubleshooting", 1],
];
var Scorer = {
  score: ([page, , , , score]) => score + (RANKS.find(([start]) => page.startsWith(start)) || ["", 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
