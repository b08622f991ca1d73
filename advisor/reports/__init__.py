"""What commands tell of studies, profiles, diagnoses, jobs, kernels and gates.

In a subject's folder `wording` has the sentences and `document` the sections and tables, which
`render_text`, `render_markdown` and `render_html` show alike; `json_documents` and `json_studies`
are for machines, `figures` writes all numbers.
"""
