"""What commands tell, of studies, profiles, diagnoses, jobs and kernels: computed nowhere here.

`X_wording` has the sentences of a subject, `X_document` its sections and tables, which
`render_text`, `render_markdown` and `render_html` show alike; `json_documents` and `json_studies`
are for machines, `figures` writes all numbers.
"""
