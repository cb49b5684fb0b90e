// Predicts with each kind of instance, has one request refused, and prints what came back as JSON.

import createClient from "openapi-fetch";

import type { components, paths } from "./schema.js";

declare const process: { env: Record<string, string | undefined> };

type Instance = components["schemas"]["PredictRequest"]["instances"][number];

const client = createClient<paths>({ baseUrl: process.env.XYLEM_TEST_URL ?? "" });

/** Return the labels of one instance, with their scores. */
async function predict(model: string, instance: Instance): Promise<[string, number][]> {
  const { data, error } = await client.POST("/v1/models/{model}/predict", {
    params: { path: { model } },
    body: { instances: [instance], top_r: 3 },
  });
  if (error !== undefined) {
    throw new Error(`${error.code}: ${error.detail}`);
  }
  return (data.predictions[0]?.labels ?? []).map(({ label, score }) => [label, score]);
}

/** Return the problem of a request that asks for too much. */
async function refused(): Promise<components["schemas"]["Problem"] | undefined> {
  const { error } = await client.POST("/v1/models/{model}/predict", {
    params: { path: { model: "text" } },
    body: { instances: [{ text: "a" }], top_r: 100_000 },
  });
  return error;
}

const found = {
  text: await predict("text", { text: "a game of chess" }),
  raw: await predict("raw", { indices: [1, 5], values: [1.0, 0.5] }),
  named: await predict("named", { features: { red: 1.0, blue: 0.25 } }),
  refused: await refused(),
};
console.log(JSON.stringify(found));
